// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"sigs.k8s.io/yaml"
)

// etcdUser is a user with a password and a role of the same name.
type etcdUser struct{ name, password string }

// newUser makes a user that may read and write below prefixes.
func newUser(t *testing.T, root *clientv3.Client, name string, prefixes ...string) etcdUser {
	t.Helper()
	ctx := t.Context()
	u := etcdUser{name, "secret of " + name}
	must(root.RoleAdd(ctx, name))(t)
	for _, p := range prefixes {
		must(root.RoleGrantPermission(ctx, name, p, clientv3.GetPrefixRangeEnd(p), clientv3.PermissionType(clientv3.PermReadWrite)))(t)
	}
	must(root.UserAdd(ctx, name, u.password))(t)
	must(root.UserGrantRole(ctx, name, name))(t)
	return u
}

// file names a configuration file with the user in it.
func (u etcdUser) file(t *testing.T, endpoints []string) setup {
	t.Helper()
	return fileOption(t, map[string]any{"endpoints": endpoints, "username": u.name, "password": u.password})
}

// fileOption writes a configuration file and names it.
func fileOption(t *testing.T, content map[string]any) setup {
	t.Helper()
	path := filepath.Join(t.TempDir(), "etcd.config")
	writeYAML(t, path, content)
	return option("etcd.config", path)
}

func writeYAML(t *testing.T, path string, content map[string]any) {
	t.Helper()
	data := must(yaml.Marshal(content))(t)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(fmt.Errorf("write %s: %w", path, err))
	}
}
