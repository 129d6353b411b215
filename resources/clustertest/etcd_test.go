// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func newEtcdClient(t *testing.T, e *Etcd, endpoints ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, TLS: e.TLSConfig(t), Username: e.Username(), Password: e.Password(),
		DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func put(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := client.Put(ctx, "key", "value")
	return err
}

func TestEtcdOutlivesAMember(t *testing.T) {
	t.Parallel()
	e := StartEtcd(t, 3, EtcdTLS(), EtcdAuth())
	client := newEtcdClient(t, e, e.Endpoints()...)
	works := func(ctx context.Context) bool { return put(ctx, client) == nil }
	until(t, "a first write", works)

	e.Kill(t, "etcd-0")
	until(t, "a write without a member", works)
	if members := e.Members(t); members[0].PID != 0 || members[1].PID == 0 {
		t.Errorf("after a kill the members are %+v", members)
	}
	e.Pause(t, "etcd-1")
	if err := put(t.Context(), client); err == nil {
		t.Error("a write succeeded without a quorum")
	}
	if members := e.Members(t); !members[1].Paused {
		t.Errorf("after a pause the members are %+v", members)
	}
	e.Start(t, "etcd-0")
	until(t, "a write with one member back and one paused", works)
	e.Resume(t, "etcd-1")
	until(t, "a write with all members", works)
}

// All members go back to a snapshot: what was written since is gone, and so are its revisions.
func TestEtcdRestore(t *testing.T) {
	t.Parallel()
	e := StartEtcd(t, 3)
	client := newEtcdClient(t, e, e.Endpoints()[0]) // a member has what it answered to, and others may be behind
	ctx := t.Context()
	until(t, "a first write", func(ctx context.Context) bool { return put(ctx, client) == nil })
	data, err := client.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	content, err := io.ReadAll(data)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "snapshot.db")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	var later *clientv3.PutResponse
	until(t, "a later write", func(ctx context.Context) bool {
		later, err = client.Put(ctx, "later", "value")
		return err == nil
	})
	e.Restore(t, file)
	for _, endpoint := range e.Endpoints() {
		until(t, "a member has the snapshot", func(ctx context.Context) bool {
			resp, err := newEtcdClient(t, e, endpoint).Get(ctx, "", clientv3.WithPrefix())
			return err == nil && len(resp.Kvs) == 1 && string(resp.Kvs[0].Key) == "key" && resp.Header.Revision < later.Header.Revision
		})
	}
}

func TestEtcdAsksWhoIsThere(t *testing.T) {
	t.Parallel()
	e := StartEtcd(t, 1, EtcdAuth())
	nobody, err := clientv3.New(clientv3.Config{Endpoints: e.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	if err := put(t.Context(), nobody); err == nil {
		t.Error("a write without a password succeeded")
	}
	known := newEtcdClient(t, e, e.Endpoints()...)
	until(t, "a write with the password", func(ctx context.Context) bool { return put(ctx, known) == nil })
}

func TestEtcdProxy(t *testing.T) {
	t.Parallel()
	e := StartEtcd(t, 1, EtcdTLS())
	client := newEtcdClient(t, e, e.ProxyEndpoints()...)
	until(t, "a first write", func(ctx context.Context) bool { return put(ctx, client) == nil })
	door := e.Proxy(t, "etcd-0")
	door.BlackHole(t)
	if err := put(t.Context(), client); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("through a black hole: %v", err)
	}
	past := newEtcdClient(t, e, e.Endpoints()...)
	until(t, "a write past the proxy", func(ctx context.Context) bool { return put(ctx, past) == nil })
	door.Heal(t)
	until(t, "a write after healing", func(ctx context.Context) bool { return put(ctx, client) == nil })
}

func TestAPIServerWithoutEtcd(t *testing.T) {
	t.Parallel()
	c := Start(t, EtcdThroughProxies())
	client := newClient(t, c.AdminConfig(t))
	write := func(ctx context.Context, name string) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := client.CoreV1().ConfigMaps("default").Create(ctx, newConfigMap(name), metav1.CreateOptions{})
		return err
	}
	written := func(name string) func(context.Context) bool {
		return func(ctx context.Context) bool {
			err := write(ctx, name)
			return err == nil || apierrors.IsAlreadyExists(err)
		}
	}
	until(t, "a first write", written("first"))
	door := c.Etcd().Proxy(t, "etcd-0")
	door.BlackHole(t)
	if err := write(t.Context(), "second"); err == nil {
		t.Error("a write without etcd succeeded")
	}
	door.Heal(t)
	until(t, "a write with etcd back", written("second"))
}

func TestControlPlaneOutlivesAnEtcdMember(t *testing.T) {
	t.Parallel()
	c := Start(t, EtcdMembers(3))
	client := newClient(t, c.AdminConfig(t))
	written := func(name string) func(context.Context) bool {
		return func(ctx context.Context) bool {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			_, err := client.CoreV1().ConfigMaps("default").Create(ctx, newConfigMap(name), metav1.CreateOptions{})
			return err == nil || apierrors.IsAlreadyExists(err)
		}
	}
	until(t, "a first write", written("first"))
	c.Etcd().Kill(t, "etcd-1")
	until(t, "a write without a member", written("second"))
	c.Etcd().Start(t, "etcd-1")
	c.Etcd().Pause(t, "etcd-2")
	until(t, "a write with another member paused", written("third"))
}
