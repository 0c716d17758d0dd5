"""Figures of any recipe, and the command line of modules that draw one."""
