"""Benchmarks in pytest, measured in instructions."""
