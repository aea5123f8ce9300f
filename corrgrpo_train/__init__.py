"""Training language models on multi-reward environments with CorrGRPO and its peers."""
