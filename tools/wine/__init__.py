"""Tests on a Windows Python under Wine: `environment` installs both, `run` builds the package and runs pytest there."""
