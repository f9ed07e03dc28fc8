"""What judged answers say of quality, as pure arithmetic: `sampling` (which requests are judged), `estimates` (from
judged pairs to differences), `intervals` (how sure they are), `judge_error` (what the judge's own mistakes come to).

What belongs here: values and arithmetic; chance arrives as an argument. What does not: asking models, keeping samples
and telling operators, which are `judging`'s.
"""
