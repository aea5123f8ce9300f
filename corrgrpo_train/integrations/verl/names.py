"""Names that both sides have to agree on; nothing of verl is imported for them."""

TRAINER = "corrgrpo"
"""`trainer.v1.trainer_mode` of our trainer."""
AGENT_LOOP = "corrgrpo"
"""`actor_rollout_ref.rollout.agent.default_agent_loop` of our agent loop."""
REGISTRATION = "corrgrpo_train.integrations.verl.registration"
"""The module that verl's `VERL_USE_EXTERNAL_MODULES` must name."""

VERL_ESTIMATORS = frozenset(
    {
        "gae",
        "gdpo",
        "gpg",
        "grpo",
        "grpo_passk",
        "grpo_vectorized",
        "opo",
        "optimal_token_baseline",
        "reinforce_plus_plus",
        "reinforce_plus_plus_baseline",
        "remax",
        "rloo",
        "rloo_vectorized",
        "tir_optimal_token_baseline",
    }
)
"""Names that verl has for estimators of its own: nobody else may register them."""


def verl_name(estimator: str) -> str:
    """Our estimator's name in verl's registry: where verl has an estimator of the name, ours is `component_NAME`."""
    return f"component_{estimator}" if estimator in VERL_ESTIMATORS else estimator
