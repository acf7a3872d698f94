"""Shared fixtures: small vocabularies and corpora that every test file may use."""
