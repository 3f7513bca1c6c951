"""An agent of --hosts that answers what its arguments say: hostile_agent.py RELEASE MACHINE ADDRESS
RESULTS. ADDRESS is where it "serves"; RESULTS are those of a test, as JSON.
"""

import json
import sys

RELEASE, MACHINE, ADDRESS, RESULTS = sys.argv[1:]


def say(**words):
    print(json.dumps(words), flush=True)


for line in sys.stdin:
    asked = json.loads(line)
    if asked["type"] == "hello":
        say(type="welcome", protocol=asked["protocol"], release=RELEASE, machine=MACHINE)
    if asked["type"] != "run":
        continue
    number, words = asked["id"], asked["arguments"]
    output = {"nics": [{"name": "soft:udp:eth0", "address": "192.0.2.1"}]}
    if words[0] == "preflight":
        output = {"findings": [], "facts": {}}
    elif words[0] != "info":
        output = {"results": json.loads(RESULTS)}
    if asked.get("announces"):
        say(type="serving", id=number, address=ADDRESS, port=1234)
    say(type="ended", id=number, code=0, output=json.dumps(output), errors="")
