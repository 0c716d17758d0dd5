"""Figures of any recipe."""
