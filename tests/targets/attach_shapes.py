# Allocates dictionaries, JSON text, matches and bytes, and prints "ready". For each line on stdin it does that again and prints "done".
import json, re, sys


def work():
    made = {str(i): {"list": list(range(i)), "text": "x" * (600 + i)} for i in range(200)}
    text = json.dumps(made, indent=1)
    again = json.loads(text)
    assert again == made
    found = re.findall(r'"text": "(x+)"', text)
    assert len(found) == 200
    blobs = [bytes(1000 + i) for i in range(100)]
    sorted(found, key=len, reverse=True)
    return sum(map(len, blobs))


work()
print("ready", flush=True)
for line in sys.stdin:
    work()
    print("done", flush=True)
