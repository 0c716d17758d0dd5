"""The experiments of the papers, and others: settings with their sources. docs/recipes.md says where each is."""
