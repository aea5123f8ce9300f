"""Runs as a page to read in a browser, and as pictures, drawn from their run folders."""
