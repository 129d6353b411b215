// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/command"
)

// CONF-18: the keys of a real etcd with a prefix, by our name and by that of the original's shell.
func TestListKeys(t *testing.T) {
	etcd := kvstoretest.Start(t, 1)
	for i, key := range []string{"cilium/state/a", "cilium/state/b", "cilium/other", "elsewhere"} {
		etcd.Put(key, fmt.Sprint("v", i), clientv3.NoLease)
	}
	file := filepath.Join(t.TempDir(), "etcd.config")
	if err := os.WriteFile(file, []byte("endpoints: ["+etcd.Endpoints()[0]+"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ args, want, failed string }{
		{"kvstore list cilium/state/ --etcd-config=" + file, "# cilium/state/a\nv0\n\n# cilium/state/b\nv1\n\n", ""},
		{"shell kvstore/list --etcd-config=" + file, "# cilium/other\nv2\n\n# cilium/state/a\nv0\n\n# cilium/state/b\nv1\n\n", ""},
		{"shell kvstore/list -o json cilium/state/b --etcd-config=" + file, "{\n  \"cilium/state/b\": \"v1\"\n}\n", ""},
		{"kvstore list nothing/ -o json --etcd-config=" + file, "{}\n", ""},
		{"kvstore list -o xml --etcd-config=" + file, "", `"xml" is no output`},
		{"kvstore list --etcd-config=" + file + ".none", "", file + ".none"},
	} {
		root := command.New("operator", cell.Set(kvstore.Cell))
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs(strings.Fields(test.args))
		err := root.ExecuteContext(t.Context())
		if (err == nil) != (test.failed == "") || err != nil && !strings.Contains(err.Error(), test.failed) || out.String() != test.want {
			t.Errorf("%s: %q, %v", test.args, &out, err)
		}
	}
}
