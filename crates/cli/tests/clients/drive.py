"""Tests a drive under mixed load whose server is killed, or whose device loses power, at any moment.

    drive.py kills IMAGE ROUNDS SEED    ROUNDS times: serve, load, kill -9, compare; IMAGE+IMAGE+IMAGE is a pool of drives of different sizes
    drive.py load DEVICE OPS JOURNAL    format, serve, load, kill -9, serve again, load, end; writes "ACK n" to descriptor 3 per answer
    drive.py judge IMAGE ACKS JOURNAL   check that the first ACKS acknowledged changes are there, and all others complete or absent

Needs TENON (the program), and boto3. Objects are compared by key, bytes, etag and metadata, and the drive is checked by 'tenon drive check'.
"""

import hashlib, json, os, random, subprocess, sys, tempfile, threading, time
import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.handlers import add_expect_header

TENON, KEY, SECRET, BUCKET = os.environ["TENON"], "tenon-tests", "not-a-secret-but-long-enough", "photos"
WORKERS, KEYS = 4, 12


def absolute(image):
    return "+".join(os.path.abspath(path) for path in image.split("+"))


class Server:
    def __init__(self, image, folder, **how):
        users = os.path.join(folder, "users.toml")
        with open(os.open(users, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as out:
            out.write(f'[[user]]\naccess_key = "{KEY}"\nsecret_key = "{SECRET}"\n')
        command = [TENON, "serve", f"drive://{absolute(image)}", "--listen", "127.0.0.1:0", "--users", users]
        # A killed server may hold its device for a moment longer.
        for _ in range(50):
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **how)
            self.url = self.process.stdout.readline().strip()
            if self.url:
                return
            self.process.wait()
            time.sleep(0.1)
        raise SystemExit(f"the drive's server did not start: exit code {self.process.returncode}")

    def client(self):
        config = Config(retries={"total_max_attempts": 1}, connect_timeout=20, read_timeout=60)
        secrets = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET}
        s3 = boto3.session.Session().client("s3", endpoint_url=self.url, region_name="us-east-1", config=config, **secrets)
        # Without this, botocore sends 'Expect' also with an empty body. The server answers at once, as most servers
        # do, and some versions of botocore (1.29) then find no headers in the next answer.
        s3.meta.events.unregister("before-call.s3", add_expect_header)
        return s3

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.terminate()
        return self.process.wait()


def bytes_of(number, size):
    block = hashlib.sha256(str(number).encode()).digest()
    return (block * (size // 32 + 1))[:size]


class Worker:
    """Changes its own keys, one change after the other, and records each change in the journal."""

    def __init__(self, number, journal):
        self.number, self.journal = number, journal

    def run(self, s3, chance, over, ops):
        for _ in range(ops):
            if over.is_set():
                return
            key, number = f"{self.number}/{chance.randrange(KEYS)}", self.journal.begun()
            try:
                self.change(s3, chance, key, number)
            except (ClientError, BotoCoreError) as error:
                if not over.is_set():
                    self.journal.fail(f"{key}: {error}")
                return

    def change(self, s3, chance, key, number):
        size = chance.choice([0, 1, 3000, 20_000, 120_000, 300_000, 1_500_000])
        size = chance.randrange(size + 1)
        kind = chance.choice(["put", "put", "put", "delete", "copy", "parts"])
        state = {"number": number, "size": size}
        if kind == "delete":
            self.journal.begin(key, number, None)
            s3.delete_object(Bucket=BUCKET, Key=key)
            return self.journal.done(key, number, None)
        if kind == "copy":
            state = self.journal.current(f"{self.number}/source")
            if state is None:
                key, state = f"{self.number}/source", {"number": number, "size": size}
            else:
                self.journal.begin(key, number, state)
                answer = s3.copy_object(Bucket=BUCKET, Key=key, CopySource=f"{BUCKET}/{self.number}/source")
                return self.journal.done(key, number, answer["CopyObjectResult"]["ETag"])
        self.journal.begin(key, number, state)
        body, described = bytes_of(number, size), {"Metadata": {"number": str(number)}}
        if kind == "parts" and size > 0:
            upload = s3.create_multipart_upload(Bucket=BUCKET, Key=key, **described)["UploadId"]
            part = s3.upload_part(Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=1, Body=body)
            parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
            answer = s3.complete_multipart_upload(Bucket=BUCKET, Key=key, UploadId=upload, MultipartUpload=parts)
        else:
            answer = s3.put_object(Bucket=BUCKET, Key=key, Body=body, **described)
        self.journal.done(key, number, answer["ETag"])


class Journal:
    """The changes that were begun and acknowledged, in order, as lines of JSON in a file."""

    def __init__(self, out, acks=None):
        self.lock, self.out, self.acks = threading.Lock(), out, acks
        self.number, self.acked, self.lines, self.failed = 0, 0, [], []

    def begun(self):
        with self.lock:
            self.number += 1
            return self.number

    def write(self, line):
        self.lines.append(line)
        self.out.write(json.dumps(line) + "\n")
        self.out.flush()

    def begin(self, key, number, state):
        with self.lock:
            self.write({"begin": number, "key": key, "state": state})

    def done(self, key, number, etag):
        with self.lock:
            self.write({"done": number, "key": key, "etag": etag, "ack": self.acked})
            if self.acks:
                self.acks.write(f"ACK {self.acked}\n")
                self.acks.flush()
            self.acked += 1

    def fail(self, line):
        with self.lock:
            self.failed.append(line)

    def current(self, key):
        with self.lock:
            return expected(self.lines, self.acked).get(key, [(None, None)])[0][0]


def expected(lines, acked, later=4):
    """Returns the allowed (state, etag) pairs by key: first the last acknowledged one, then those begun after it. Where answers are
    counted late, a worker may have completed more than one change after the last counted answer."""
    etags = {line["done"]: line["etag"] for line in lines if "done" in line}
    known = {line["done"] for line in lines if "done" in line and line["ack"] < acked}
    settled = {line["settled"] for line in lines if "settled" in line and line["ack"] < acked}
    allowed, left = {}, {}
    for line in lines:
        if "begin" not in line:
            continue
        number, key, worker = line["begin"], line["key"], line["key"].split("/")[0]
        may_be = (line["state"], etags.get(number))
        if number in known:
            allowed[key] = [may_be]
        elif number not in settled and left.setdefault(worker, later) > 0:
            left[worker] -= 1
            allowed.setdefault(key, [(None, None)]).append(may_be)
    return allowed


def differences(s3, allowed):
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    try:
        listed = {entry["Key"]: entry for page in pages for entry in page.get("Contents", [])}
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchBucket" or any(may_be[0][0] for may_be in allowed.values()):
            raise
        return
    for key in sorted(set(listed) - set(allowed)):
        yield f"{key} exists, but was never stored"
    for key, may_be in allowed.items():
        entry = listed.get(key)
        if entry is None:
            if all(state for state, _ in may_be):
                yield f"{key} is missing, expected one of {may_be}"
            continue
        found = s3.get_object(Bucket=BUCKET, Key=key)
        body, etag, number = found["Body"].read(), found["ETag"], int(found["Metadata"]["number"])
        fits = lambda state, named: state and state["number"] == number and named in (None, etag)
        if entry["ETag"] != etag or entry["Size"] != len(body) or not any(fits(*one) for one in may_be):
            yield f"{key} is {number} ({etag}, listed {entry['ETag']}), expected one of {may_be}"
        elif body != bytes_of(number, next(state["size"] for state, named in may_be if fits(state, named))):
            yield f"{key} does not have the bytes that were stored"


def restart_and_check(image, folder, allowed):
    server = Server(image, folder)
    found = list(differences(server.client(), allowed))
    code = server.end()
    if code != 0:
        found.append(f"the server ended with exit code {code}")
    for path in image.split("+"):
        checked = subprocess.run([TENON, "drive", "check", path], capture_output=True, text=True)
        if checked.returncode != 0 or not checked.stdout.endswith(" 0 problems\n"):
            found.append(f"drive check {path}: {checked.stdout} {checked.stderr}")
    return found


def load(server, journal, chance, ops, seconds=None):
    over = threading.Event()
    works = [
        threading.Thread(target=Worker(n, journal).run, args=(server.client(), random.Random(chance.random()), over, ops))
        for n in range(WORKERS)
    ]
    for work in works:
        work.start()
    if seconds is not None:
        time.sleep(seconds)
        over.set()
        server.kill()
    for work in works:
        work.join()
    if journal.failed:
        raise SystemExit("; ".join(journal.failed))


def settle(server, journal):
    """Looks up after a kill which of the unacknowledged changes took effect, and records the result in the journal."""
    s3 = server.client()
    allowed = expected(journal.lines, journal.acked)
    done = {line["done"] for line in journal.lines if "done" in line}
    for line in [line for line in journal.lines if "begin" in line and line["begin"] not in done]:
        journal.write({"settled": line["begin"], "ack": journal.acked})
    for key, may_be in allowed.items():
        if len(may_be) > 1:
            try:
                found = s3.get_object(Bucket=BUCKET, Key=key)
                number, etag = int(found["Metadata"]["number"]), found["ETag"]
                state = next(state for state, _ in may_be if state and state["number"] == number)
            except ClientError:
                state, etag = None, None
            again = journal.begun()
            journal.begin(key, again, state)
            journal.done(key, again, etag)


def kills(image, rounds, seed):
    folder = tempfile.mkdtemp()
    chance = random.Random(seed)
    paths = image.split("+")
    for n, path in enumerate(paths):
        size = f"{48 + 16 * n}MiB"
        subprocess.run([TENON, "drive", "format", path, "--size", size], check=True, stdout=subprocess.DEVNULL)
    if len(paths) > 1:
        subprocess.run([TENON, "drive", "join", absolute(image)], check=True, stdout=subprocess.DEVNULL)
    server = Server(image, folder)
    server.client().create_bucket(Bucket=BUCKET)
    journal = Journal(open(os.path.join(folder, "journal"), "w"))
    for n in range(rounds):
        load(server, journal, chance, 1 << 30, chance.uniform(0.05, 1.5))
        found = restart_and_check(image, folder, expected(journal.lines, journal.acked))
        if found:
            raise SystemExit(f"after kill {n}: " + "\n".join(found))
        server = Server(image, folder)
        settle(server, journal)
    server.end()
    print(f"{rounds} kills, {journal.acked} changes acknowledged")


def record_load(device, ops, path):
    folder = os.path.dirname(path)
    chance = random.Random(1)
    subprocess.run([TENON, "drive", "format", device, "--force"], check=True)
    server = Server(device, folder)
    server.client().create_bucket(Bucket=BUCKET)
    journal = Journal(open(path, "w"), os.fdopen(3, "w"))
    load(server, journal, chance, 1 << 30, 20)
    server = Server(device, folder)
    settle(server, journal)
    load(server, journal, chance, ops)
    raise SystemExit(server.end())


def judge(image, acks, path):
    with open(path) as journal:
        lines = [json.loads(line) for line in journal]
    found = restart_and_check(image, os.path.dirname(path), expected(lines, acks))
    print("\n".join(found))
    raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["kills", image, rounds, seed]:
            kills(image, int(rounds), int(seed))
        case ["load", device, ops, path]:
            record_load(device, int(ops), path)
        case ["judge", image, acks, path]:
            judge(image, int(acks), path)
        case _:
            raise SystemExit(__doc__)
