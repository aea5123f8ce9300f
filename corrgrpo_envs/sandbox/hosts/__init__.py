"""Where workers live: `embedded` beside this process, `docker` in containers."""
