"""What strangers and followers send at random, held against an independent reading."""
