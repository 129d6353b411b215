// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
)

// Numbers 19 and 22 of the contract's kvstore.md, as far as keys are written here. An etcd that refuses an operator, for want of space, of a permission or of a password, or that is refused, for another's
// certificate: health names the endpoint, the user, and the reason; what is no matter of etcd goes on; and what was wanted
// meanwhile is written as soon as etcd takes it (KV-O1, KV-T1, KV-T4).
func TestEtcdRefuses(t *testing.T) {
	for name, refusal := range map[string]func(*refused){
		"space": (*refused).space, "permission": (*refused).permission, "password": (*refused).password, "certificate": (*refused).certificate,
	} {
		t.Run(name, func(t *testing.T) { refusal(&refused{base: newWorld(t)}) })
	}
}

// refused is an operator with an etcd that begins to refuse it, or does so from the start.
type refused struct {
	base *world
	*etcdDuties
	o    *operator
	want converged
}

func (r *refused) begins(e *kvstoretest.Etcd) {
	r.etcdDuties = newEtcdDuties(r.base, e, "kvstore")
	r.want = r.populate()
}

// starts runs the operator with a client file.
func (r *refused) starts(content string) {
	r.base.t.Helper()
	file := filepath.Join(r.base.t.TempDir(), "etcd.config")
	if err := os.WriteFile(file, []byte(fmt.Sprintf("endpoints: [%s]\n%s", r.etcd.Endpoints()[0], content)), 0o600); err != nil {
		r.base.t.Fatal(err)
	}
	r.o, _ = r.base.run("refused", nil, r.withDuties("--kvstore-opt=etcd.config="+file)...)
	r.o.leads()
}

// converges waits until the store is as it should be, and health is well.
func (r *refused) converges() {
	r.base.t.Helper()
	r.o.until("the store has converged", func() bool { return r.converged(r.want) })
	var s status
	defer func() {
		if r.base.t.Failed() {
			r.base.t.Logf("degraded: %s", s.degraded())
		}
	}()
	r.o.until("health is well", func() (ok bool) { s, ok = r.o.status(); return ok && len(s.Degraded) == 0 })
}

// says waits until health has all texts and the endpoint, in one line of a module; other duties go on.
func (r *refused) says(module string, texts ...string) {
	r.base.t.Helper()
	texts = append(texts, r.etcd.Endpoints()[0])
	r.o.until(fmt.Sprintf("%s says %q", module, texts), func() bool {
		s, _ := r.o.status()
		for line := range strings.Lines(s.degraded()) {
			says := strings.HasPrefix(line, module)
			for _, text := range texts {
				says = says && strings.Contains(line, text)
			}
			if says {
				return true
			}
		}
		return false
	})
	node := fmt.Sprint("meanwhile-", len(r.want.nodes))
	r.base.served(node)
	r.want.nodes[nodeKeys+node] = `"` + node + `"`
}

func (r *refused) space() {
	e := kvstoretest.Start(r.base.t, 1)
	r.begins(e)
	r.starts("")
	r.converges()
	alarm := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE}
	if _, err := pb.NewMaintenanceClient(e.Client.ActiveConnection()).Alarm(r.base.t.Context(), alarm); err != nil {
		r.base.t.Fatal(err)
	}
	r.sentinelService()
	r.says("servicesync.", "database space exceeded", "put "+r.serviceKey(sentinel))
	r.says("nodesync.", "database space exceeded")
	if _, err := e.Client.AlarmDisarm(r.base.t.Context(), &clientv3.AlarmMember{}); err != nil {
		r.base.t.Fatal(err)
	}
	r.converges()
}

func (r *refused) sentinelService() {
	r.service(sentinel, "10.1.1.1")
	r.want.services[r.serviceKey(sentinel)] = `"10.1.1.1"`
}

// user makes a user who may do all that the operator has to.
func (r *refused) user(e *kvstoretest.Etcd, password string) {
	ctx, auth := r.base.t.Context(), e.Client
	_, err := auth.RoleAdd(ctx, "operator")
	if err == nil {
		err = r.grant(e)
	}
	if err == nil {
		_, err = auth.UserAdd(ctx, "operator", password)
	}
	if err == nil {
		_, err = auth.UserGrantRole(ctx, "operator", "operator")
	}
	if err != nil {
		r.base.t.Fatal(err)
	}
}

func (r *refused) grant(e *kvstoretest.Etcd) error {
	const prefix = "cilium/"
	_, err := e.Client.RoleGrantPermission(r.base.t.Context(), "operator", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
	return err
}

func (r *refused) permission() {
	e := kvstoretest.Start(r.base.t, 1, clustertest.EtcdAuth())
	r.user(e, "secret")
	r.begins(e)
	r.starts("username: operator\npassword: secret\n")
	r.converges()
	if _, err := e.Client.RoleRevokePermission(r.base.t.Context(), "operator", "cilium/", clientv3.GetPrefixRangeEnd("cilium/")); err != nil {
		r.base.t.Fatal(err)
	}
	r.sentinelService()
	r.says("servicesync.", "permission denied", `user "operator"`)
	if err := r.grant(e); err != nil {
		r.base.t.Fatal(err)
	}
	r.converges()
}

func (r *refused) password() {
	e := kvstoretest.Start(r.base.t, 1, clustertest.EtcdAuth())
	r.user(e, "another")
	r.begins(e)
	r.starts("username: operator\npassword: secret\n")
	r.says("kvstore.", "authentication failed", `user "operator"`)
	if _, err := e.Client.UserChangePassword(r.base.t.Context(), "operator", "secret"); err != nil {
		r.base.t.Fatal(err)
	}
	r.converges()
}

func (r *refused) certificate() {
	e, other := kvstoretest.Start(r.base.t, 1, clustertest.EtcdTLS()), clustertest.StartEtcd(r.base.t, 1, clustertest.EtcdTLS())
	ca, certFile, keyFile := e.Files()
	wrong, _, _ := other.Files()
	authority := filepath.Join(r.base.t.TempDir(), "ca")
	use := func(file string) {
		pem, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(authority, pem, 0o600)
		}
		if err != nil {
			r.base.t.Fatal(err)
		}
	}
	use(wrong)
	r.begins(e)
	r.starts(fmt.Sprintf("trusted-ca-file: %s\ncert-file: %s\nkey-file: %s\n", authority, certFile, keyFile))
	r.says("kvstore.", "certificate signed by unknown authority", "certificate "+certFile)
	use(ca)
	r.converges()
}
