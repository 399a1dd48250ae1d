//! nginx as a reverse proxy, beside the gateway or in front of it.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::support::client::Connection;
use super::support::gateway::free_port;
use super::support::until;

/// One connection for many requests, as nginx does not by itself.
pub const KEEP_ALIVE: &str = "proxy_http_version 1.1; proxy_set_header Connection \"\";";

/// A running nginx, ended when dropped.
pub struct Nginx {
    /// Where it listens.
    pub port: u16,
    /// Such as `nginx 1.22.1`.
    pub version: String,
    child: Child,
    _home: tempfile::TempDir,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn binary() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let folders =
        std::env::split_paths(&paths).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/local/sbin")]);
    folders.map(|folder| folder.join("nginx")).find(|path| path.is_file())
}

/// In front of whoever listens on `behind`, with these directives for its requests; `None` where nginx is not installed.
pub fn start(behind: u16, directives: &str) -> Option<Nginx> {
    let binary = binary()?;
    let said = Command::new(&binary).arg("-v").output().expect("nginx says its version");
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    let number = said.trim().rsplit('/').next().unwrap_or_default();
    let version = format!("nginx {}", number.split(' ').next().unwrap_or_default());
    let home = tempfile::tempdir().expect("a temporary folder");
    let (port, at) = (free_port(), home.path().display().to_string());
    let configuration = format!(
        "daemon off; master_process off; worker_processes 1; pid {at}/pid; error_log {at}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi;
    uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;
    large_client_header_buffers 4 8k; client_max_body_size 64k;
    upstream backend {{ server 127.0.0.1:{behind}; keepalive 8; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://backend; {directives} }}
    }}
}}
"
    );
    let file = home.path().join("nginx.conf");
    std::fs::write(&file, configuration).expect("a writable folder");
    let mut command = Command::new(binary);
    command.arg("-c").arg(&file).arg("-p").arg(home.path()).stdin(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("nginx starts");
    let nginx = Nginx { port, version, child, _home: home };
    until("nginx listens", || Connection::try_open(port).ok());
    Some(nginx)
}
