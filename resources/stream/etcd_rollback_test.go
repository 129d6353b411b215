// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/stream/streamtest"
	"github.com/skep-operator/skep/runtime/waittest"
)

// An API server that comes back with older data than it had, as when etcd was
// restored from a backup, is noticed: here it is another, younger one.
func TestRealServerComesBackWithOlderData(t *testing.T) {
	backup, cluster := newBackup(t, clustertest.Start(t)), newBackup(t, clustertest.Shared(t))
	for i := 0; cluster.revision() <= backup.revision()+100; i++ {
		cluster.put(fmt.Sprint("filler-", i%10), fmt.Sprint(i))
	}
	cluster.put("both", "new")
	cluster.put("lost", "new")
	backup.put("both", "old")

	var current atomic.Pointer[stream.Connect]
	current.Store(&cluster.connect)
	source := stream.NewSource(func(ctx context.Context) (rest.Interface, error) { return (*current.Load())(ctx) })
	s, err := stream.New(source, streamtest.CoreThings().InNamespace(backupNamespace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	store, err := s.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	value := func(name string) string {
		thing, ok := store.Get(slim.Key{Namespace: backupNamespace, Name: name})
		if !ok {
			return ""
		}
		return thing.Value()
	}
	if value("both") != "new" || value("lost") != "new" {
		t.Fatalf("the stream does not show what is there: %q, %q", value("both"), value("lost"))
	}

	cluster.door.Refuse(t)
	cluster.door.Cut(t)
	until(t, "the server is away", func() bool { return strings.Contains(s.State().Wrong["connection"], "refused") })
	current.Store(&backup.connect)
	until(t, "the older data are shown", func() bool { return value("both") == "old" && value("lost") == "" })
	backup.put("both", "newer")
	until(t, "the stream goes on", func() bool { return value("both") == "newer" })
}

const backupNamespace = "backup"

// backup is a server, and a way to it that can be shut.
type backup struct {
	*realRig
	t       *testing.T
	door    *clustertest.Proxy
	connect stream.Connect
}

func newBackup(t *testing.T, cluster *clustertest.Cluster) *backup {
	b := &backup{realRig: newRealRig(t, cluster, false), t: t, door: cluster.NewProxy(t)}
	b.makeNamespace(t, backupNamespace)
	config := b.door.AdminConfig(t)
	b.connect = streamtest.ConnectWith(config, httpClient(t, config))
	return b
}

func (b *backup) put(name, value string) {
	put(b.t, b.admin.Resource(b.gvr).Namespace(backupNamespace), b.new(backupNamespace, name, value))
}

func (b *backup) revision() slim.Revision {
	b.t.Helper()
	list, err := b.admin.Resource(b.gvr).Namespace(backupNamespace).List(b.t.Context(), metav1.ListOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	revision, err := slim.ParseRevision(list.GetResourceVersion())
	if err != nil {
		b.t.Fatal(err)
	}
	return revision
}

// until waits for a state.
var until = waittest.Until
