# Fthe worker threads with work that is checked, in CPython. "ping N" is answered by "pong N
# ROUNDS"; the end of the input ends it.
import hashlib
import os
import sys
import threading
import zlib

stop = False
wrong = 0
rounds = [0] * 4


def work(which):
    global wrong
    right = None
    while not stop:
        table = {n: str(n) * 3 for n in range(500)}
        text = "".join(table[n] for n in sorted(table)).encode()
        digest = hashlib.sha256(zlib.decompress(zlib.compress(text, 1))).hexdigest()
        if right is None:
            right = digest
        if digest != right:
            wrong += 1
        rounds[which] += 1


threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads:
    thread.start()
print("ready", flush=True)
while line := sys.stdin.readline():
    words = line.split()
    if words[:1] == ["ping"]:
        print("pong", words[1], sum(rounds), flush=True)
stop = True
for thread in threads:
    thread.join()
os._exit(8 if wrong or not all(rounds) else 0)
