# Allocates in four threads and checks what it computes. Prints "ready", and "right" when stdin ends. Ends with code 97 if a check fails.
import json, os, sys, threading

stop = False


def work():
    while not stop:
        made = {str(i): [i] * 10 for i in range(100)}
        if json.loads(json.dumps(made)) != made:
            os._exit(97)


threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
print("ready", flush=True)
sys.stdin.read()
stop = True
for thread in threads:
    thread.join()
print("right", flush=True)
