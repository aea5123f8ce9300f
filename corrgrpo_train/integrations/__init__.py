"""The environments and estimators in other people's trainers."""
