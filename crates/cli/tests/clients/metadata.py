"""An object's headers, metadata and tags are a file's attributes: they can be set and read from either side."""

import os, subprocess, time
import boto3

s3 = boto3.client("s3", endpoint_url=os.environ["URL"], aws_access_key_id=os.environ["KEY"],
    aws_secret_access_key=os.environ["SECRET"], region_name="us-east-1")
bucket, root = os.environ["BUCKET"], os.environ["ROOT"]
key = "metadata-%s.html" % os.environ["URL"].rsplit(":", 1)[1].strip("/")


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def path():
    return os.path.join(root, key)


def shown():
    lines = run("getfattr", "-d", "-m", "-", "--absolute-names", path()).splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def head():
    return s3.head_object(Bucket=bucket, Key=key)


def tags():
    return {tag["Key"]: tag["Value"] for tag in s3.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]}


def sync():
    file = os.open(path(), os.O_RDONLY)
    os.fsync(file)
    os.close(file)


def eventually(condition):
    for _ in range(250):
        if condition():
            return
        time.sleep(0.04)
    raise AssertionError((shown(), head(), tags()))


def has_followed():
    """Tells whether the object has its new key; objects follow renames of files in the background."""
    return any(found["Key"] == key for found in s3.list_objects_v2(Bucket=bucket, Prefix=key).get("Contents", []))


# Attributes that a program sets on the file appear on the object.
with open(path(), "w") as file:
    file.write("one")
run("setfattr", "-n", "user.project", "-v", "apollo", path())
run("setfattr", "-n", "user.who", "-v", "größe ☃", path())
run("setfattr", "-n", "user.spaces", "-v", "two  spaces", path())
run("setfattr", "-n", "user.tag.größe", "-v", "klein", path())
run("setfattr", "-n", "user.empty", "-v", "", path())
run("setfattr", "-n", "user.binary", "-v", "0xff00", path())
run("setfattr", "-n", "user.tag.stage", "-v", "raw", path())
sync()
found = head()
assert found["Metadata"]["project"] == "apollo", found
assert found["ContentType"] == "text/html", found
assert tags()["stage"] == "raw", tags()
names = ["user.binary", "user.empty", "user.project", "user.spaces", "user.tag.größe", "user.tag.stage", "user.who"]
assert sorted(shown()) == names, shown()
assert os.getxattr(path(), "user.binary") == b"\xff\x00"
assert os.getxattr(path(), "user.empty") == b""
assert os.getxattr(path(), "user.spaces") == b"two  spaces"
assert os.getxattr(path(), "user.tag.größe") == b"klein"
assert os.getxattr(path(), "user.who") == "größe ☃".encode()
run("setfattr", "-x", "user.project", path())
run("setfattr", "-x", "user.tag.größe", path())
run("setfattr", "-n", "user.tag.stage", "-v", "done", path())
eventually(lambda: "project" not in head()["Metadata"] and tags() == {"stage": "done"})
for name, flag, errno in [("user.who", os.XATTR_CREATE, 17), ("user.none", os.XATTR_REPLACE, 61)]:
    try:
        os.setxattr(path(), name, b"x", flag)
        raise AssertionError(name)
    except OSError as error:
        assert error.errno == errno, error

# Metadata that another client sets appears on the file, and survives all changes of the content.
given = dict(ContentType="text/x-odd", CacheControl="max-age=60", ContentDisposition="attachment",
    ContentLanguage="de", ContentEncoding="identity", Metadata={"Project": "gemini", "mtime": "1"})
s3.put_object(Bucket=bucket, Key=key, Body=b"from there", Tagging="stage=raw&who=me", **given)
eventually(lambda: shown() == {"user.project": '"gemini"', "user.tag.stage": '"raw"', "user.tag.who": '"me"'})


def has_all(after):
    sync()
    found = head()
    for name, value in given.items():
        if name != "Metadata":
            assert found[name] == value, (after, name, found)
    assert found["Metadata"]["project"] == "gemini", (after, found)
    assert tags() == {"stage": "raw", "who": "me"}, (after, tags())


with open(path(), "a") as file:
    file.write(", appended")
has_all("an append")
with open(path(), "r+") as file:
    file.write("FROM")
has_all("an edit in place")
os.truncate(path(), 4)
has_all("a truncation")
os.chmod(path(), 0o600)
has_all("a chmod")
with open(path(), "w") as file:
    file.write("anew")
has_all("a rewrite")
old, key = key, "moved-" + key
os.rename(os.path.join(root, old), path())
eventually(has_followed)
has_all("a rename")
assert open(path()).read() == "anew"

# When a program replaces the file by a rename, the object has the attributes of the new file.
with open(path() + ".part", "w") as file:
    file.write("replaced")
os.rename(path() + ".part", path())
eventually(lambda: head()["ContentType"] == "text/html" and "project" not in head()["Metadata"] and tags() == {})
