"""The simulated cluster: the same jobs, reports and actions as on
Spark, as fast as the CPU allows.
"""
