//! PostgreSQL from Debian's package.

use crate::SmallDisk;
use crate::program;
use crate::server::{Server, ServerSpec};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;

const USER: &str = "tenon";
const PASSWORD: &str = "no-secret-either";

/// A running PostgreSQL with one user, who owns the databases but is no superuser. Its data survives [`Server::stop`] and
/// [`Server::restart`].
#[derive(Debug)]
pub struct Postgres(Server);

/// Starts a PostgreSQL. It refuses to run as root, so for root it runs as `nobody`.
///
/// # Panics
/// If the programs are missing or the server does not answer.
pub fn postgres() -> Postgres {
    postgres_in("data".into())
}

/// Starts a PostgreSQL whose data is on a small disk, which a test can fill. [`Server::keep_data`] does not keep this data.
///
/// # Panics
/// If the programs are missing or the server does not answer.
pub fn postgres_on(disk: &SmallDisk) -> Postgres {
    disk.open_to_all();
    postgres_in(disk.path().join("data"))
}

fn postgres_in(data: PathBuf) -> Postgres {
    let initdb = program::find_debian_program("initdb", "postgresql");
    let programs = initdb.parent().map(Path::to_owned).unwrap_or_default();
    Postgres(Server::launch(Box::new(Spec { programs, data })))
}

impl Postgres {
    /// Returns the URL of the database, without a password.
    pub fn url(&self) -> String {
        format!("postgres://{USER}@{}/{USER}", self.address())
    }

    /// Returns the user's password.
    pub fn password(&self) -> &'static str {
        PASSWORD
    }
}

impl Deref for Postgres {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl DerefMut for Postgres {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.0
    }
}

#[derive(Debug)]
struct Spec {
    programs: PathBuf,
    /// The data directory; a relative path begins in the server's directory.
    data: PathBuf,
}

/// Makes the data directory, the user and the database at the first start, and then runs the server. `$1` is the directory of the programs,
/// `$2` the port, `$3` the user, `$4` the password, `$5` the data directory. After a kill of the server its other processes end by themselves; until then the
/// data cannot be opened again. The server does not sync, because tests kill processes and no machines.
const START: &str = r#"
if [ "$(id -u)" = 0 ]; then
  mkdir -p "$5"
  [ "$(stat --format=%U "$5")" = nobody ] || chown -R nobody . "$5" || exit 1
  exec setpriv --reuid=nobody --regid=nogroup --clear-groups /bin/sh ./start "$@"
fi
if [ ! -e "$5/PG_VERSION" ]; then
  "$1/initdb" --auth=scram-sha-256 --username=postgres --pwfile=admin --encoding=UTF8 --locale=C "$5" || exit 1
  printf "CREATE ROLE %s LOGIN PASSWORD '%s'\n" "$3" "$4" | "$1/postgres" --single -D "$5" postgres || exit 1
  printf "CREATE DATABASE %s OWNER %s\n" "$3" "$3" | "$1/postgres" --single -D "$5" postgres || exit 1
fi
for attempt in 1 2 3 4 5 6 7 8 9 10; do
  "$1/postgres" -D "$5" -c port="$2" -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=200 -c fsync=off
  sleep 0.3
done
exit 1
"#;

impl ServerSpec for Spec {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        for (name, text) in [("admin", PASSWORD), ("start", START)] {
            std::fs::write(dir.join(name), text)
                .unwrap_or_else(|error| panic!("cannot write '{name}': {error}"));
        }
        let mut command = Command::new("/bin/sh");
        command.current_dir(dir).arg("./start").arg(&self.programs);
        command.args([&address.port().to_string(), USER, PASSWORD]).arg(&self.data);
        command
    }

    fn is_ready(&self, address: SocketAddr) -> bool {
        let asked = Command::new(self.programs.join("pg_isready"))
            .args(["--quiet", "--host", "127.0.0.1", "--port", &address.port().to_string()])
            .status();
        asked.is_ok_and(|status| status.success())
    }
}
