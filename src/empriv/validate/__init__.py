"""Can the risk be believed? Bounds, checks and a verdict on what `measuring` found; no data engine is seen here."""
