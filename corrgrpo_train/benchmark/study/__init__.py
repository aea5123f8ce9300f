"""The project's own study of CorrGRPO beside other estimators, told in `docs/study.md`.

`settings`: what is compared under which conditions; `bandit` and `guard`: the table policy; `rlla`: a small language
model; `pages`: from numbers to the tables of the page. `python -m corrgrpo_train.benchmark.study` does all of it.
"""
