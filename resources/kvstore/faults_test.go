// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/clustertest"
)

// tlsFile is a configuration file whose certificates are copies, so that a test
// can change them.
func tlsFile(t *testing.T, e *clustertest.Etcd, endpoints []string) (setup, map[string]string) {
	t.Helper()
	ca, cert, key := e.Files()
	dir := t.TempDir()
	paths := map[string]string{}
	for name, from := range map[string]string{"ca": ca, "cert": cert, "key": key} {
		paths[name] = filepath.Join(dir, name)
		copyFile(t, from, paths[name])
	}
	return fileOption(t, map[string]any{
		"endpoints": endpoints, "trusted-ca-file": paths["ca"], "cert-file": paths["cert"], "key-file": paths["key"],
	}), paths
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	check(t, os.WriteFile(to, must(os.ReadFile(from))(t), 0o600))
}

// KV-C5 and KV-T1: a wrong CA is reported with endpoint and reason, retried without
// limit, and replaced as soon as the file is. So is a client certificate, also when the
// connection was established before.
func TestTLSFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	e, other := clustertest.StartEtcd(t, 1, clustertest.EtcdTLS()), clustertest.StartEtcd(t, 1, clustertest.EtcdTLS())
	etcd, door := directClient(t, e), e.Proxy(t, "etcd-0")
	opt, paths := tlsFile(t, e, e.ProxyEndpoints())
	wrongCA, wrongCert, wrongKey := other.Files()
	copyFile(t, wrongCA, paths["ca"])
	r := newHarness(t, opt, quick)
	endpoint := strings.TrimPrefix(e.ProxyEndpoints()[0], "https://")
	eventually(t, "the log names endpoint and reason", func() bool { return r.log.count("WARN", endpoint, "certificate signed by unknown authority") > 0 })
	if n := r.log.count("WARN", "unknown authority"); n != 1 {
		t.Errorf("one failure is logged %d times:\n%s", n, r.log)
	}
	ca, cert, key := e.Files()
	copyFile(t, ca, paths["ca"])
	r.ready(t)
	check(t, r.Write(withCause(t), Put("k", []byte("1"))))

	copyFile(t, wrongCert, paths["cert"])
	copyFile(t, wrongKey, paths["key"])
	check(t, r.Write(withCause(t), Put("k", []byte("2")))) // the connection is up
	door.Cut(t)
	eventually(t, "etcd refuses the certificate", func() bool { return r.Status().Err != nil })
	copyFile(t, cert, paths["cert"])
	copyFile(t, key, paths["key"])
	eventually(t, "etcd takes the certificate", func() bool { return r.Write(withCause(t), Put("k", []byte("3"))) == nil })
	if !holds(t, etcd, "k", "3") {
		t.Error("the write is not there")
	}
	eventually(t, "status is well", func() bool { return r.Status().Err == nil })
}

// docs/wire/kvstore.md, KV-E5, second half: a missing file is retried, and so are the
// files that it refers to.
func TestFileComesLater(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1, clustertest.EtcdTLS())
	dir := t.TempDir()
	path, caPath := filepath.Join(dir, "etcd.config"), filepath.Join(dir, "ca")
	ca, cert, key := e.Files()
	r := newHarness(t, option("etcd.config", path))
	eventually(t, "the log names the file", func() bool { return r.log.count("WARN", path, "no such file") == 1 })
	writeYAML(t, path, map[string]any{"endpoints": e.Endpoints(), "trusted-ca-file": caPath, "cert-file": cert, "key-file": key})
	copyFile(t, ca, caPath)
	r.ready(t)
}

// KV-T1: a wrong password is reported with endpoint and user, and retried.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1, clustertest.EtcdAuth())
	root := directClient(t, e)
	u := newUser(t, root, "operator", "cilium/")
	wrong := etcdUser{u.name, "wrong"}
	r := newHarness(t, wrong.file(t, e.Endpoints()), quick)
	eventually(t, "the log names the user", func() bool {
		return r.log.count("WARN", "authentication failed", e.Endpoints()[0], `user "operator"`) == 1
	})
	must(root.UserChangePassword(t.Context(), u.name, "wrong"))(t)
	r.ready(t)
	if err := r.Write(withCause(t), Put("elsewhere", nil)); err == nil || !strings.Contains(err.Error(), `"operator"`) || !strings.Contains(err.Error(), "put elsewhere") {
		t.Errorf("a write that the role does not allow: %v", err)
	}
	check(t, r.Write(withCause(t), PutLeased("cilium/k", nil)))
	eventually(t, "status is well, though only root may read that of members", func() bool {
		s := r.Status()
		return s.Err == nil && s.Connected() == 1 && s.Endpoints[0].Version == statusRefused
	})
}

// KV-T1 and KV-T4: an etcd without space takes deletes only. Writes are retried, status and log name the cause, and what
// was wanted meanwhile is written when there is space again.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd := directClient(t, e)
	r := newHarness(t, quick, to(e.Endpoints()[0]), func(p *connParams) { p.Timing.checkTimeout = time.Second }).ready(t)
	s := newServices(t, r)
	s.Upsert("a", []byte("1"))
	s.Upsert("b", []byte("1"))
	s.Synced()
	run(t, s.Run)
	eventually(t, "keys are written", func() bool { return read(t, etcd, syncedOfC1) != nil })

	alarm := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE}
	must(pb.NewMaintenanceClient(etcd.ActiveConnection()).Alarm(t.Context(), alarm))(t)
	s.Upsert("a", []byte("2"))
	s.Upsert("c", []byte("1"))
	s.Delete("b")
	eventually(t, "a key is deleted", func() bool { return read(t, etcd, servicesOfC1+"b") == nil })
	eventually(t, "status names the cause", func() bool {
		err := r.Status().Err
		return err != nil && strings.Contains(err.Error(), "database space exceeded") && strings.Contains(err.Error(), e.Endpoints()[0])
	})
	eventually(t, "failures are counted and logged", func() bool { return errorsOf(r) > 0 && r.log.count("WARN", "database space exceeded") > 0 })
	if !holds(t, etcd, servicesOfC1+"a", "1") || read(t, etcd, servicesOfC1+"c") != nil {
		t.Error("a key was written without space")
	}

	must(etcd.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}))(t)
	eventually(t, "all is written", func() bool { return holds(t, etcd, servicesOfC1+"a", "2") && holds(t, etcd, servicesOfC1+"c", "1") })
	eventually(t, "status is well", func() bool { return r.Status().Err == nil })
}

// KV-Q1, KV-Q3 and KV-T1: of three members the leader is killed: nothing stops.
// Another hangs: without a quorum writes fail, and status says so after the
// tolerated number of checks. After its return etcd is healthy again.
func TestMembersAway(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 3)
	etcd := directClient(t, e)
	r := newHarness(t, quick, fileOption(t, map[string]any{"endpoints": e.Endpoints()}),
		option("etcd.keepaliveHeartbeat", "10s"), option("etcd.keepaliveTimeout", "1s"),
		func(p *connParams) {
			p.Timing.checkTimeout, p.Timing.operation, p.Timing.attempt = time.Second, time.Second, 300*time.Millisecond
		}).ready(t)
	s := newServices(t, r)
	s.Upsert("0", []byte("v"))
	s.Synced()
	run(t, s.Run)
	v := watchView(t, r, "p/")
	written := func(name string) func() bool {
		return func() bool { return read(t, etcd, servicesOfC1+name) != nil }
	}
	eventually(t, "the synced marker", func() bool { return read(t, etcd, syncedOfC1) != nil })
	eventually(t, "three members", func() bool { return r.Status().Connected() == 3 && r.Status().Err == nil })
	eventually(t, "one of them leads", func() bool { return strings.Count(r.Status().String(), "(Leader)") == 1 })

	away, hanging := theLeader(t, e), "etcd-1"
	if away == hanging {
		hanging = "etcd-2"
	}
	e.Kill(t, away)
	s.Upsert("1", []byte("v"))
	eventually(t, "a write without a member", written("1"))
	eventually(t, "status shows it", func() bool { s := r.Status(); return s.Connected() == 2 && s.Err == nil && s.Quorum })

	e.Pause(t, hanging)
	s.Upsert("2", []byte("v"))
	eventually(t, "no quorum", func() bool { s := r.Status(); return s.Err != nil && !s.Quorum && s.QuorumErrors > 2 })
	if err := r.Write(withCause(t), Put("k", nil)); err == nil {
		t.Error("a write without a quorum succeeded")
	}
	e.Resume(t, hanging)
	eventually(t, "the write that waited", written("2"))
	eventually(t, "status is well", func() bool { s := r.Status(); return s.Err == nil && s.Quorum && s.QuorumErrors == 0 })
	eventually(t, "another write", func() bool { _, err := etcd.Put(t.Context(), "p/a", "1"); return err == nil })
	eventually(t, "the watch goes on", func() bool { return v.equals(t, etcd, "p/") })
	e.Start(t, away)
	eventually(t, "three members again", func() bool { return r.Status().Connected() == 3 })
	v.complain(t)
}

// theLeader is the member that leads etcd now, which a status may be too old to know.
func theLeader(t *testing.T, e *clustertest.Etcd) (leader string) {
	t.Helper()
	etcd := directClient(t, e)
	eventually(t, "a member leads", func() bool {
		for _, m := range e.Members(t) {
			if resp, err := etcd.Status(t.Context(), m.Endpoint); err == nil && resp.Leader == resp.Header.MemberId {
				leader = m.Name
			}
		}
		return leader != ""
	})
	return leader
}

// KV-T1: a slow etcd causes no failure.
func TestSlowEtcd(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, door := directClient(t, e), e.Proxy(t, "etcd-0")
	r := newHarness(t, to(e.ProxyEndpoints()[0]), quick).ready(t)
	s := newServices(t, r)
	run(t, s.Run)
	v := watchView(t, r, servicesOfC1)
	door.Delay(t, 300*time.Millisecond, 300*time.Millisecond)
	for i := range 20 {
		s.Upsert("k", []byte{byte('a' + i)})
	}
	s.Synced()
	eventually(t, "the last value and the mark", func() bool {
		return holds(t, etcd, servicesOfC1+"k", "t") && read(t, etcd, syncedOfC1) != nil
	})
	eventually(t, "the view", func() bool { return v.equals(t, etcd, servicesOfC1) })
	v.complain(t)
	eventually(t, "a check that etcd passes", func() bool { return r.Status().Err == nil })
	if s := r.Status(); s.LeasesLost != 0 {
		t.Errorf("leases were lost: %v", s)
	}
}

// KV-S3: whatever etcd does, stopping ends, and starting never waits for it.
func TestStopWithoutEtcd(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	for what, away := range map[string]clustertest.Link{
		"refuses": {Refuse: true},
		"hangs":   {Up: clustertest.Direction{BlackHole: true}, Down: clustertest.Direction{BlackHole: true}},
	} {
		for _, when := range []string{"before", "after"} {
			door := e.NewProxy(t, "etcd-0")
			address := "http://" + door.Address()
			if when == "before" {
				door.SetLink(t, away)
			}
			r := newHarness(t, to(address))
			if when == "after" {
				r.ready(t)
				check(t, r.Write(withCause(t), PutLeased("k", nil)))
				door.SetLink(t, away)
				if away.Refuse {
					door.Cut(t)
				}
			}
			s := newServices(t, r)
			s.Upsert("k", nil)
			stop := run(t, s.Run)
			ctx, cancel := context.WithTimeout(withCause(t), 200*time.Millisecond)
			err := r.Write(ctx, Put("k", nil))
			cancel()
			if err == nil || !strings.Contains(err.Error(), address) && when == "after" {
				t.Errorf("etcd %s, %s the start: %v", what, when, err)
			}
			stop()
			check(t, r.stop()) // has a limit of its own
		}
	}
}
