"""The portable grader: one stand-alone program that scores a reply by a rule (rules.py); every layout ships it."""
