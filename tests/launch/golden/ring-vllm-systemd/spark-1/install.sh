#!/bin/sh
# Installs and starts what spark-1 has to run; as root, in this folder. Written by `pointsman plan render`.
set -eu
cd "$(dirname "$0")"
id pointsman >/dev/null 2>&1 || useradd --system --home-dir /var/lib/pointsman --shell /usr/sbin/nologin pointsman
install -d -m 0750 -g pointsman /etc/pointsman/engines
install -m 0640 -g pointsman -t /etc/pointsman/engines large-a-0.env large-a-0.sh
install -m 0644 -t /etc/systemd/system ../pointsman-engine@.service
systemctl daemon-reload
systemctl enable --now pointsman-engine@large-a-0.service
