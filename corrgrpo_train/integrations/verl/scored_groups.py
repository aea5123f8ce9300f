"""`ScoredGroups`: verl's dynamic sampling, which compares the scored episodes of a group alone."""

import inspect
import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import transfer_queue
from verl.trainer.ppo.v1.replay_buffer import FILTER_GROUPS_REWARD_METRIC, ReplayBuffer

from corrgrpo_envs.errors import unknown
from corrgrpo_train.errors import UsageError
from corrgrpo_train.integrations.verl.components import COMPONENTS, WEIGHTS
from corrgrpo_train.rollout.dynamic_sampling import uniform

logger = logging.getLogger(__name__)

NOT_SCORED = math.nan
"""What a group is replaced for where none of its episodes was scored; elsewhere it is the value that all share."""


class ScoredGroups(ReplayBuffer):  # type: ignore[misc]  # verl has no types
    """verl's synchronous replay buffer, with another answer to which groups are replaced.

    verl compares all episodes of a group: one that could not be scored enters with reward 0, or with nan, and so seems
    to give a signal. Here a group is replaced if its scored episodes do not differ, as in our own trainer.
    """

    @classmethod
    def like(cls, buffer: ReplayBuffer) -> "ScoredGroups":
        """Make one with the settings of verl's."""
        return cls(**{name: getattr(buffer, name) for name in inspect.signature(ReplayBuffer).parameters})

    def _dapo_filtered_keys(self, partition_id: str) -> tuple[set[str], Counter[float]]:
        """Groups to be replaced, and how many of them share which value.

        Raises:
            UsageError: if scored episodes do not have what they are to be compared by.
        """
        if partition_id == "val" or self.filter_groups_metric is None:
            return set(), Counter()
        finished = self.finished_keys[partition_id]
        # Each finished group is looked at once: its shared value, or None where it is kept.
        known = self._dapo_classification_cache[partition_id]
        for uid in known.keys() - finished:
            del known[uid]
        groups: dict[str, list[str]] = {uid: [] for uid in finished - known.keys()}
        for key in self.partitions[partition_id]:
            uid = key.split("_")[0]
            if uid in groups:
                groups[uid].append(key)
        for uid, keys in groups.items():
            known[uid] = shared_value(self._fetched(keys, partition_id), self.filter_groups_metric)
        replaced = {uid: value for uid, value in known.items() if value is not None}
        unscored = sum(math.isnan(value) for value in replaced.values())
        if unscored:
            logger.warning("%d groups are replaced because none of their episodes was scored", unscored)
        return set(replaced), Counter(value for value in replaced.values() if not math.isnan(value))

    def _fetched(self, keys: list[str], partition_id: str) -> list[Mapping[str, Any]]:
        if not keys:
            return []
        data = transfer_queue.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["extra_fields"])
        return [getattr(fields, "data", fields) for fields in data["extra_fields"]]


def shared_value(rows: Sequence[Mapping[str, Any]], metric: str) -> float | None:
    """The value that all scored episodes of a group share; None if they differ, `NOT_SCORED` if there are none.

    Args:
        rows: extra fields of the group's episodes.
        metric: `"reward"`, or a name in `reward_extra_info`: `"components/NAME"`, `"metrics/NAME"`.

    Raises:
        UsageError: if a scored episode does not have the metric.
    """
    values = []
    for row in rows:
        components, weights = row[COMPONENTS], row[WEIGHTS]
        counted = {name: value for name, value in components.items() if weights[name] != 0}
        if not components or any(map(math.isnan, counted.values())):
            continue
        known = row["reward_extra_info"] | {
            FILTER_GROUPS_REWARD_METRIC: sum(weights[name] * value for name, value in counted.items())
        }
        if metric not in known:
            raise UsageError(str(unknown("algorithm.filter_groups.metric", metric, known)))
        values.append(known[metric])
    values = [value for value in values if not math.isnan(value)]
    if not values:
        return NOT_SCORED
    return float(values[0]) if uniform(values) else None
