"""What operators run around a log: audits of the live system, repairs, a doctor.

Everything is computed again from what Postgres and Redis hold; nothing here is on the path of an append.
"""
