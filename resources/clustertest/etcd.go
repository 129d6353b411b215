// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"strconv"
	"testing"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// Etcd is a running etcd: a cluster's own, or one without a control plane.
type Etcd struct {
	process *process
}

// EtcdOption changes the etcd that StartEtcd makes.
type EtcdOption func(*[]string)

// EtcdTLS makes members speak TLS and ask clients for a certificate.
func EtcdTLS() EtcdOption { return EtcdOption(withFlags("--tls")) }

// EtcdAuth makes clients authenticate with Username and Password.
func EtcdAuth() EtcdOption { return EtcdOption(withFlags("--auth")) }

// StartEtcd runs an etcd without a control plane until the test ends. Each
// member is a process that can be controlled, with a fault proxy in front.
func StartEtcd(tb testing.TB, members int, opts ...EtcdOption) *Etcd {
	tb.Helper()
	skipIfShort(tb)
	args := []string{"etcd", "--members", strconv.Itoa(members)}
	for _, opt := range opts {
		opt(&args)
	}
	p, err := start(tb.TempDir(), args...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.stop(); err != nil {
			tb.Error(err)
		}
	})
	return &Etcd{p}
}

// Etcd is the cluster's etcd. The API server's keys begin with /registry/.
func (c *Cluster) Etcd() *Etcd { return &Etcd{c.process} }

// Endpoints are the members' own client URLs.
func (e *Etcd) Endpoints() []string { return e.process.info.Etcd.Endpoints() }

// ProxyEndpoints are client URLs through the members' fault proxies.
func (e *Etcd) ProxyEndpoints() []string { return e.process.info.Etcd.ProxyEndpoints() }

// Username and Password are set with EtcdAuth.
func (e *Etcd) Username() string { return e.process.info.Etcd.Username }

// Password: see Username.
func (e *Etcd) Password() string { return e.process.info.Etcd.Password }

// Files are the certificate of the authority, and a client's certificate and
// key. They are empty without EtcdTLS.
func (e *Etcd) Files() (ca, cert, key string) {
	info := e.process.info.Etcd
	return info.CAFile, info.CertFile, info.KeyFile
}

// TLSConfig is what a client needs; nil without EtcdTLS.
func (e *Etcd) TLSConfig(tb testing.TB) *tls.Config {
	tb.Helper()
	ca, certFile, keyFile := e.Files()
	if ca == "" {
		return nil
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		tb.Fatalf("read the etcd's authority: %v", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		tb.Fatalf("%s holds no certificate", ca)
	}
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		tb.Fatalf("load the etcd client's certificate: %v", err)
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}}
}

// Members are the members as they are now. Their names are what the methods
// below take.
func (e *Etcd) Members(tb testing.TB) []control.Member {
	tb.Helper()
	var info control.Info
	must(tb, func(ctx context.Context) (err error) {
		info, err = e.process.control.Info(ctx)
		return err
	})
	return info.Etcd.Members
}

// Proxy is the front door of a member.
func (e *Etcd) Proxy(tb testing.TB, member string) *Proxy {
	tb.Helper()
	for _, m := range e.process.info.Etcd.Members {
		if m.Name == member {
			target, err := url.Parse(m.ProxyEndpoint)
			if err != nil {
				tb.Fatalf("parse the endpoint of etcd member %s: %v", member, err)
			}
			return &Proxy{id: member, address: target.Host, process: e.process}
		}
	}
	tb.Fatalf("there is no etcd member %q", member)
	return nil
}

// NewProxy opens another front door of a member until the test ends.
func (e *Etcd) NewProxy(tb testing.TB, member string, link ...Link) *Proxy {
	tb.Helper()
	return newProxy(tb, e.process, control.NewProxy{Backend: member}, link)
}

// Pause stops a member's process where it is (SIGSTOP).
func (e *Etcd) Pause(tb testing.TB, member string) {
	tb.Helper()
	must(tb, func(ctx context.Context) error { return e.process.control.PauseMember(ctx, member) })
}

// Resume lets a paused member go on.
func (e *Etcd) Resume(tb testing.TB, member string) {
	tb.Helper()
	must(tb, func(ctx context.Context) error { return e.process.control.ResumeMember(ctx, member) })
}

// Kill kills a member (SIGKILL).
func (e *Etcd) Kill(tb testing.TB, member string) {
	tb.Helper()
	must(tb, func(ctx context.Context) error { return e.process.control.KillMember(ctx, member) })
}

// Start starts a killed member on its data and ports.
func (e *Etcd) Start(tb testing.TB, member string) {
	tb.Helper()
	must(tb, func(ctx context.Context) error { return e.process.control.StartMember(ctx, member) })
}

// Restore replaces the data of all members by that of a snapshot file, as etcdutl does: the members are killed, and started
// again on their ports as a new cluster. It returns when they have a quorum.
func (e *Etcd) Restore(tb testing.TB, snapshot string) {
	tb.Helper()
	must(tb, func(ctx context.Context) error {
		return e.process.control.RestoreEtcd(ctx, control.File{Path: snapshot})
	})
}
