"""Objects, text, JSON, regular expressions, threads, children: what python3 does all day."""
import hashlib
import json
import multiprocessing
import re
import subprocess
import sys
import threading

def documents(count):
    return [{"id": i, "tags": [f"tag{i % 7}", "near"], "nested": {"k%d" % j: [j] * 5 for j in range(8)}} for i in range(count)]

digest = hashlib.sha256()
for turn in range(4):
    text = json.dumps(documents(4000))
    digest.update(text.encode())
    again = json.loads(text)
    digest.update(str(sum(len(d["nested"]) for d in again)).encode())

words = re.findall(r"[a-z]+\d", text)
digest.update(str(len(words)).encode())
digest.update(re.sub(r"(tag)(\d)", r"\2\1", text).encode())

table = {}
for i in range(150000):
    table[f"key {i * 7919 % 100003}"] = [i, str(i)]
digest.update(str(len(table)).encode())

sums = [0] * 4
def work(at):
    sums[at] = sum(len(str(i) * 3) for i in range(60000))
threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
digest.update(repr(sums).encode())

for i in range(5):
    digest.update(subprocess.check_output(["echo", f"child {i}"]))
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        digest.update(repr(pool.map(str.upper, [f"near {i}" * 20 for i in range(2000)])).encode())
big = bytearray()
for i in range(3000):
    big.extend(b"x" * 4096)
digest.update(big)
sys.stdout.write(digest.hexdigest() + "\n")
