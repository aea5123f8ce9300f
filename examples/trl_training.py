"""Train with TRL's GRPOTrainer on an environment of this project, with any of its estimators.

    python examples/trl_training.py --env RLLA-v0 --model runs/qwen/checkpoints/step_000000/policy --steps 50
    python examples/trl_training.py --env AgentDojo-v0 --env-args '{"suites": ["banking"]}' --model Qwen/Qwen3-1.7B

Needs TRL: pip install -e '.[train,trl]'. Environments with tools need a model whose chat template has them, and which
TRL knows how to read. A policy without any signal in its rewards learns nothing: start from one that has seen a few
right answers, such as the checkpoint of step 0 of this project's own trainer, after its warm start.
"""

import argparse
import json

import torch
from trl import GRPOConfig

from corrgrpo_train.integrations.trl import MultiRewardGRPOTrainer, trl_task
from corrgrpo_train.models import load_policy_model


def main():
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="RLLA-v0")
    parser.add_argument("--env-args", type=json.loads, default={}, help="constructor arguments, JSON")
    parser.add_argument("--model", default="default")
    parser.add_argument("--estimator", default="corrgrpo")
    parser.add_argument("--estimator-options", type=json.loads, default={}, help="JSON")
    parser.add_argument("--loss-type", default="dapo", help="TRL's: grpo, dapo, cispo, ...")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--groups", type=int, default=4, help="tasks per step")
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--learning-rate", type=float, default=1e-6)
    parser.add_argument("--limit", type=int, default=200, help="tasks to train on at most")
    parser.add_argument("--output", default="runs/trl")
    args = parser.parse_args()

    policy = load_policy_model(args.model)
    settings = GRPOConfig(
        args.output,
        use_cpu=not torch.cuda.is_available(),
        max_steps=args.steps,
        per_device_train_batch_size=args.group_size,
        gradient_accumulation_steps=args.groups,
        num_generations=args.group_size,
        max_completion_length=args.max_new_tokens,
        learning_rate=args.learning_rate,
        loss_type=args.loss_type,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
    )
    with trl_task(
        args.env,
        policy.tokenizer,
        env_args=args.env_args,
        limit=args.limit,
        stop_token_ids=policy.stop_token_ids,
    ) as task:
        trainer = MultiRewardGRPOTrainer(
            policy.model,
            task.reward_funcs,
            settings,
            task.datasets["train"],
            processing_class=policy.tokenizer,
            environment_factory=task.environment_factory,
            estimator=args.estimator,
            estimator_options=args.estimator_options,
        )
        trainer.train()
        trainer.save_model()


if __name__ == "__main__":
    main()
