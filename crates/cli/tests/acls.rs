//! Access control lists, set and read by the usual programs: one script must print the same on a mount and on the
//! machine's own file system, permission checks by the kernel included.

use crate::fixture::{Home, capture};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Sets and reads lists and modes of everything below a directory in every way. Runs as root, with a user and a group
/// that need no name.
const SCRIPT: &str = r#"
cd "$1"; umask 022
as() { user=$1; shift; setpriv --reuid "$user" --regid "$user" --clear-groups sh -c "$*" 2>&1 && echo yes || echo no; }
show() { getfacl -cnp "$@"; stat -c '%a %n' "$@"; }
chmod 777 .
echo text > file; chmod 640 file
setfacl -m u:2001:r file; show file
as 2001 cat file; as 2001 'echo more >> file'; as 2002 cat file
setfacl -m u:2001:rw,g:2002:r file; show file
as 2001 'echo more >> file'; as 2002 cat file
chmod 600 file; show file; as 2001 cat file
chmod g+rwx file; show file
setfacl -m m::r file; show file
setfacl -x g:2002 file; show file
setfacl -b file; show file; ls -l file | cut -c1-11
setfacl -m u::rwx,g::-,o::- file; show file
mkdir dir; setfacl -d -m u:2001:rwx,g::r-x,o::- dir; show dir
umask 077
echo x > dir/made; mkdir dir/below; mkfifo dir/pipe; ln -s made dir/link; show dir/made dir/below dir/pipe
stat -c '%A' dir/link
echo x > dir/below/deep; show dir/below/deep
umask 022
setfacl -k dir; echo x > dir/plain; show dir/plain
mkdir shared; chown 2003:2004 shared; chmod 2775 shared; setfacl -d -m g:2005:rwx shared
mkdir shared/sub; touch shared/sub/f; show shared shared/sub shared/sub/f; stat -c '%g %n' shared/sub shared/sub/f
touch program; chown 2006:2007 program; chmod 2755 program
as 2006 'setfacl -m u:2001:rx program'; show program
chmod 2755 program; setfacl -m u:2001:rwx program; show program
setpriv --reuid 2006 --regid 2006 --groups 2007 setfacl -m u:2001:r program; show program
as 2001 'setfacl -m u:2001:rwx program'
as 2001 'chmod 777 program'
setfattr -n system.posix_acl_access -v 0x0200000001000600ffffffff program 2>&1 | sed 's/.*: //'
setfattr -n system.posix_acl_default -v 0x0200000001000700ffffffff04000500ffffffff20000500ffffffff program 2>&1 | sed 's/.*: //'
setfattr -n system.posix_acl_access -v 0x03 program 2>&1 | sed 's/.*: //'
ln -s program to-program; setfacl -m u:2001:rw to-program; show program
setfacl -m u:2001:rw dir; setfacl -d -m u:2002:rx dir; mv dir moved; show moved
cp -a moved copied; show copied copied/made
rsync -aA moved/ synced/; show synced synced/made
tar --acls -cf archive.tar moved; mkdir out; tar --acls -xpf archive.tar -C out; show out/moved out/moved/made
"#;

impl Home {
    fn acls_of(&self, dir: &str) -> String {
        let output = capture(self.command("/bin/sh").args(["-euc", SCRIPT, "sh", dir]));
        assert_eq!(output.code, 0, "{output:?}");
        assert_eq!(output.err, "", "{}", output.out);
        output.out
    }
}

#[test]
fn s170_s171_lists_are_as_on_ext4() {
    let home = Home::new();
    home.ok(["format", "volume", "--naming", "inode"]);
    home.ok(["mount", "volume", "mnt", "--allow-other"]);
    fs::create_dir(home.path("reference")).unwrap();
    fs::create_dir(home.path("mnt/work")).unwrap();
    // Let other users pass through the temporary directory.
    fs::set_permissions(home.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let (expected, found) = (home.acls_of("reference"), home.acls_of("mnt/work"));
    let differs = expected.lines().zip(found.lines()).position(|(a, b)| a != b);
    assert_eq!(expected, found, "line {differs:?} differs");
    home.ok(["umount", "mnt"]);
    home.ok(["mount", "volume", "mnt"]);
    let kept = capture(home.command("getfacl").args(["-cnp", "mnt/work/copied"]));
    assert!(kept.out.contains("user:2001:rw-") && kept.out.contains("default:user:2002:r-x"), "{kept:?}");
    assert!(home.ok(["fsck", "mnt"]).contains("is clean"));
}
