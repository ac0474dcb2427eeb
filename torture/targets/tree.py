# Four processes that compute parts of one sum and meet after each round, as ranks of an MPI program
# do. The first answers pings.
import os
import socket
import sys

RANKS = 4
pairs = [socket.socketpair() for _ in range(RANKS)]
for rank in range(RANKS):
    if os.fork() == 0:
        for n, (ours, theirs) in enumerate(pairs):
            ours.close()
            if n != rank:
                theirs.close()
        link = pairs[rank][1]
        while word := link.recv(8):
            upto = int.from_bytes(word, "little")
            link.sendall(sum(range(rank, upto, RANKS)).to_bytes(8, "little"))
        os._exit(0)
links = [ours for ours, theirs in pairs if not theirs.close()]
rounds = wrong = 0
print("ready", flush=True)
while line := sys.stdin.readline():
    words = line.split()
    for _ in range(20):
        for link in links:
            link.sendall((20000).to_bytes(8, "little"))
        total = sum(int.from_bytes(link.recv(8, socket.MSG_WAITALL), "little") for link in links)
        wrong += total != sum(range(20000))
        rounds += 1
    if words[:1] == ["ping"]:
        print("pong", words[1], rounds, flush=True)
for link in links:
    link.close()
codes = [os.waitpid(-1, 0)[1] for _ in range(RANKS)]
sys.exit(8 if wrong or any(codes) else 0)
