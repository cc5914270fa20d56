"""Judging: predictions become requests, requests become accepted replies, replies become scores."""
