"""Built-in tasks written for this project, read with `importlib.resources`."""
