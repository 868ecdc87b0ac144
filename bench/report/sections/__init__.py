"""Sections of a report: each answers one question; build.py lists them."""
