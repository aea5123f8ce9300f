"""What an answer to an evaluation environment gets."""

STAGES = ("format", "syntax", "runtime", "correctness")


def step(env, task_id, answer):
    """The four components as digits, and the status; without a task's id the seed 0 draws one."""
    env.reset(seed=0, options={"task_id": task_id} if task_id else None)
    _, reward, terminated, truncated, info = env.step(answer)
    assert (terminated, truncated) == (True, False)
    found = info["reward_components"]
    assert reward == found["correctness"]
    return "".join(str(int(found[name])) for name in STAGES), info["status"]
