"""Names that both sides have to agree on; nothing of verl is imported for them."""

TRAINER = "corrgrpo"
"""`trainer.v1.trainer_mode` of our trainer."""
AGENT_LOOP = "corrgrpo"
"""`actor_rollout_ref.rollout.agent.default_agent_loop` of our agent loop."""
REGISTRATION = "corrgrpo_train.integrations.verl.registration"
"""The module that verl's `VERL_USE_EXTERNAL_MODULES` must name."""

_TAKEN = frozenset({"grpo", "gdpo", "rloo"})


def verl_name(estimator: str) -> str:
    """Our estimator's name in verl's registry: where verl has an estimator of the name, ours is `component_NAME`."""
    return f"component_{estimator}" if estimator in _TAKEN else estimator
