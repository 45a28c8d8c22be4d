"""Sets and gets of many sizes over a Unix socket; checks each answer. Usage: memcached_client.py SOCKET"""
import socket
import sys
import time

for attempt in range(200):
    try:
        connections = []
        for _ in range(8):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(sys.argv[1])
            connections.append(connection)
        break
    except OSError:
        time.sleep(0.02)

files = [connection.makefile("rwb") for connection in connections]
total = 0
for turn in range(120):
    for at, file in enumerate(files):
        for key in range(60):
            value = bytes([65 + key % 26]) * (40 + (key * 797 + turn * 131) % 9000)
            file.write(b"set key%d-%d 0 0 %d\r\n%s\r\n" % (at, key, len(value), value))
        file.flush()
    for at, file in enumerate(files):
        for key in range(60):
            assert file.readline() == b"STORED\r\n"
        for key in range(60):
            file.write(b"get key%d-%d\r\n" % (at, key))
        file.flush()
    for at, file in enumerate(files):
        for key in range(60):
            words = file.readline().split()
            value = file.read(int(words[3]))
            assert set(value) == {65 + key % 26}
            total += len(value)
            assert file.readline() == b"\r\n" and file.readline() == b"END\r\n"
print("memcached:", total, "bytes")
