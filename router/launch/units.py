"""Files that are the same for every plan: the unit that starts a rank, which deploy/systemd/ holds too, and the
playbook that brings ranks to their nodes."""

from __future__ import annotations

from typing import Final

ENGINE_UNIT: Final = """\
# One rank of a model group: /etc/pointsman/engines/NAME.sh says what it runs, NAME.env how its network is set.
[Unit]
Description=Model group rank %i
After=network-online.target
Wants=network-online.target
ConditionPathExists=/etc/pointsman/engines/%i.sh
# A rank whose peers are gone ends, and comes again until they are back.
StartLimitIntervalSec=0

[Service]
Type=exec
User=pointsman
Group=pointsman
EnvironmentFile=/etc/pointsman/engines/%i.env
Environment=HOME=%C/pointsman HF_HOME=%C/pointsman/huggingface
ExecStart=/bin/sh /etc/pointsman/engines/%i.sh
KillMode=mixed
# An engine that has lost a peer hangs in a collective and hears no SIGTERM.
TimeoutStopSec=30
Restart=always
RestartSec=10
CacheDirectory=pointsman
# RDMA registers the memory that it reads and writes.
LimitMEMLOCK=infinity
LimitNOFILE=65536
OOMScoreAdjust=-500

LockPersonality=yes
NoNewPrivileges=yes
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHome=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectSystem=strict
RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
UMask=0077

[Install]
WantedBy=multi-user.target
"""

PLAYBOOK: Final = """\
# Written by `pointsman plan render`: ansible-playbook --inventory inventory.yml site.yml
- name: Model groups
  hosts: engines
  become: true
  tasks:
    - name: Make the user
      ansible.builtin.user:
        name: pointsman
        system: true
        home: /var/lib/pointsman
        create_home: false
        shell: /usr/sbin/nologin

    - name: Make the folder
      ansible.builtin.file:
        path: /etc/pointsman/engines
        state: directory
        owner: root
        group: pointsman
        mode: "0750"

    - name: Copy what each rank runs
      ansible.builtin.copy:
        src: "{{ inventory_hostname }}/{{ item }}"
        dest: /etc/pointsman/engines/{{ item }}
        owner: root
        group: pointsman
        mode: "0640"
      loop: "{{ rank_files }}"
      notify: Restart the ranks

    - name: Copy the unit
      ansible.builtin.copy:
        src: pointsman-engine@.service
        dest: /etc/systemd/system/pointsman-engine@.service
        owner: root
        group: root
        mode: "0644"
      notify: Restart the ranks

    - name: Start the ranks
      ansible.builtin.systemd_service:
        name: pointsman-engine@{{ item }}.service
        enabled: true
        state: started
        daemon_reload: true
      loop: "{{ engine_ranks }}"

  handlers:
    - name: Restart the ranks
      ansible.builtin.systemd_service:
        name: pointsman-engine@{{ item }}.service
        state: restarted
        daemon_reload: true
      loop: "{{ engine_ranks }}"
"""
