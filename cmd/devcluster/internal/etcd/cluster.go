// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package etcd

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/skep-operator/skep/cmd/devcluster/internal/child"
	"github.com/skep-operator/skep/cmd/devcluster/internal/pki"
	"github.com/skep-operator/skep/cmd/devcluster/internal/port"
	"github.com/skep-operator/skep/resources/clustertest/control"
)

// MemberCommand is the hidden command of this program that runs RunMember.
const MemberCommand = "etcd-member"

// Options describe an etcd cluster.
type Options struct {
	// Dir holds data, descriptions and certificates.
	Dir string
	// LogDir holds a log file per member.
	LogDir string
	// Members is how many there are.
	Members int
	// Embedded runs the only member inside this process, where it costs less
	// memory and cannot be controlled.
	Embedded bool
	// TLS makes members speak TLS and ask clients for certificates.
	TLS bool
	// Auth makes clients authenticate as root with a password.
	Auth bool
}

// Cluster is a running etcd cluster. Its methods are safe for concurrent use.
type Cluster struct {
	opts     Options
	members  []member
	ports    []*port.Port
	tls      *tlsFiles
	password string
	embedded *embed.Etcd

	mu        sync.Mutex
	processes map[string]*child.Process
	paused    map[string]bool
}

func memberName(i int) string { return "etcd-" + strconv.Itoa(i) }

// Start runs a cluster and returns when it has a quorum and, if asked,
// authentication is on. Data that is in Dir already is kept.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if opts.Members < 1 || (opts.Embedded && opts.Members != 1) {
		return nil, fmt.Errorf("an etcd of %d members is not possible here", opts.Members)
	}
	c := &Cluster{opts: opts, processes: map[string]*child.Process{}, paused: map[string]bool{}}
	if err := c.start(ctx); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := os.MkdirAll(c.opts.Dir, 0o700); err != nil {
		return fmt.Errorf("make the etcd directory: %w", err)
	}
	if c.opts.TLS {
		files, err := writeCertificates(c.opts.Dir)
		if err != nil {
			return err
		}
		c.tls = files
	}
	if err := c.describe(); err != nil {
		return err
	}
	if c.opts.Embedded {
		server, err := c.members[0].start(ctx)
		c.embedded = server
		return err
	}
	for _, m := range c.members {
		if err := c.StartMember(m.Name); err != nil {
			return err
		}
	}
	if err := c.awaitQuorum(ctx); err != nil {
		return err
	}
	if c.opts.Auth {
		return c.enableAuth(ctx)
	}
	return nil
}

// describe reserves the ports and says what each member is.
func (c *Cluster) describe() error {
	peers := map[string]string{}
	for i := range c.opts.Members {
		name := memberName(i)
		clientPort, err := c.reserve()
		if err != nil {
			return err
		}
		peerPort, err := c.reserve()
		if err != nil {
			return err
		}
		m := member{
			Name: name, DataDir: filepath.Join(c.opts.Dir, name),
			LogFile: filepath.Join(c.opts.LogDir, name+".log"),
			Client:  clientPort.Address(), Peer: peerPort.Address(),
			Peers: peers, TLS: c.tls,
		}
		peers[name] = m.peerURL()
		c.members = append(c.members, m)
	}
	return nil
}

func (c *Cluster) reserve() (*port.Port, error) {
	p, err := port.Reserve()
	if err == nil {
		c.ports = append(c.ports, p)
	}
	return p, err
}

func writeCertificates(dir string) (*tlsFiles, error) {
	authority, err := pki.NewAuthority("etcd")
	if err != nil {
		return nil, err
	}
	server, err := authority.Server("etcd")
	if err != nil {
		return nil, err
	}
	client, err := authority.Client("etcd-client")
	if err != nil {
		return nil, err
	}
	var f tlsFiles
	if f.CA, _, err = authority.Pair().Write(dir, "ca"); err != nil {
		return nil, err
	}
	if f.ServerCert, f.ServerKey, err = server.Write(dir, "server"); err != nil {
		return nil, err
	}
	if f.ClientCert, f.ClientKey, err = client.Write(dir, "client"); err != nil {
		return nil, err
	}
	return &f, nil
}

// Client returns a client of all members.
func (c *Cluster) Client() (*clientv3.Client, error) {
	return c.client(c.password)
}

// redial is how soon a member that does not listen yet is tried again. gRPC's own first
// pause is a second, which every start would take.
var redial = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
	MinConnectTimeout: time.Second,
}

func (c *Cluster) client(password string) (*clientv3.Client, error) {
	cfg := clientv3.Config{
		Logger: zap.NewNop(), DialTimeout: 10 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(redial)},
	}
	for _, m := range c.members {
		cfg.Endpoints = append(cfg.Endpoints, m.clientURL())
	}
	if password != "" {
		cfg.Username, cfg.Password = "root", password
	}
	if c.tls != nil {
		info := transport.TLSInfo{CertFile: c.tls.ClientCert, KeyFile: c.tls.ClientKey, TrustedCAFile: c.tls.CA}
		config, err := info.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("load the etcd client's certificate: %w", err)
		}
		cfg.TLS = config
	}
	client, err := clientv3.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("make an etcd client: %w", err)
	}
	return client, nil
}

// awaitQuorum waits until a read that needs a quorum is answered.
func (c *Cluster) awaitQuorum(ctx context.Context) error {
	client, err := c.client("")
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		_, err = client.Get(attempt, "quorum")
		cancel()
		if err == nil {
			return nil
		}
		if err := c.deadMember(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the etcd's quorum: %w", errors.Join(context.Cause(ctx), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// deadMember tells of a member whose process has ended by itself.
func (c *Cluster) deadMember() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, process := range c.processes {
		select {
		case <-process.Done():
			return fmt.Errorf("etcd member %s ended (%v), see %s", name, process.Wait(), c.opts.LogDir)
		default:
		}
	}
	return nil
}

func (c *Cluster) enableAuth(ctx context.Context) error {
	client, err := c.client("")
	if err != nil {
		return err
	}
	defer client.Close()
	password := rand.Text()
	if _, err := client.UserAdd(ctx, "root", password); err != nil {
		return fmt.Errorf("add the etcd user root: %w", err)
	}
	if _, err := client.UserGrantRole(ctx, "root", "root"); err != nil {
		return fmt.Errorf("make the etcd user root an administrator: %w", err)
	}
	if _, err := client.AuthEnable(ctx); err != nil {
		return fmt.Errorf("switch etcd authentication on: %w", err)
	}
	c.password = password
	return nil
}

// Info says how to reach the cluster, as it is now and without proxies.
func (c *Cluster) Info() control.Etcd {
	c.mu.Lock()
	defer c.mu.Unlock()
	info := control.Etcd{}
	for _, m := range c.members {
		described := control.Member{Name: m.Name, Endpoint: m.clientURL(), Paused: c.paused[m.Name]}
		if c.opts.Embedded {
			described.PID = os.Getpid()
		} else if process := c.runningLocked(m.Name); process != nil {
			described.PID = process.PID()
		}
		info.Members = append(info.Members, described)
	}
	if c.tls != nil {
		info.CAFile, info.CertFile, info.KeyFile = c.tls.CA, c.tls.ClientCert, c.tls.ClientKey
	}
	if c.password != "" {
		info.Username, info.Password = "root", c.password
	}
	return info
}

func (c *Cluster) runningLocked(name string) *child.Process {
	process := c.processes[name]
	if process == nil {
		return nil
	}
	select {
	case <-process.Done():
		return nil
	default:
		return process
	}
}

// StartMember starts a member's process on its data and ports.
func (c *Cluster) StartMember(name string) error {
	m, err := c.controlled(name)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runningLocked(name) != nil {
		return fmt.Errorf("etcd member %s runs already", name)
	}
	description, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("describe etcd member %s: %w", name, err)
	}
	file := filepath.Join(c.opts.Dir, name+".json")
	if err := os.WriteFile(file, description, 0o600); err != nil {
		return fmt.Errorf("describe etcd member %s: %w", name, err)
	}
	output, err := os.OpenFile(m.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of etcd member %s: %w", name, err)
	}
	defer output.Close() // the process has its own
	process, err := child.Start(output, MemberCommand, file)
	if err != nil {
		return fmt.Errorf("start etcd member %s: %w", name, err)
	}
	c.processes[name] = process
	return nil
}

// PauseMember stops a member's process where it is.
func (c *Cluster) PauseMember(name string) error {
	return c.control(name, (*child.Process).Pause, true)
}

// ResumeMember lets a paused member go on.
func (c *Cluster) ResumeMember(name string) error {
	return c.control(name, sends(syscall.SIGCONT), false)
}

// KillMember kills a member and returns when it is dead.
func (c *Cluster) KillMember(name string) error {
	if err := c.control(name, sends(syscall.SIGKILL), false); err != nil {
		return err
	}
	c.mu.Lock()
	process := c.processes[name]
	c.mu.Unlock()
	_ = process.Wait() // it was killed
	return nil
}

func sends(sig syscall.Signal) func(*child.Process) error {
	return func(p *child.Process) error { return p.Signal(sig) }
}

func (c *Cluster) control(name string, do func(*child.Process) error, pauses bool) error {
	if _, err := c.controlled(name); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	process := c.runningLocked(name)
	if process == nil {
		return fmt.Errorf("etcd member %s does not run: start it first", name)
	}
	if err := do(process); err != nil {
		return fmt.Errorf("send a signal to etcd member %s: %w", name, err)
	}
	c.paused[name] = pauses
	return nil
}

func (c *Cluster) controlled(name string) (member, error) {
	for _, m := range c.members {
		if m.Name != name {
			continue
		}
		if c.opts.Embedded {
			return m, fmt.Errorf("etcd member %s runs inside the devcluster: ask for more than one member, or for an etcd of its own, to control members", name)
		}
		return m, nil
	}
	return member{}, fmt.Errorf("there is no etcd member %q", name)
}

// Stop stops all members; it does not wait for a quorum or for a paused member.
func (c *Cluster) Stop() {
	if c.embedded != nil {
		c.embedded.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, process := range c.processes {
		// Data is safe either way, and killing does not wait. An error means
		// that the process has ended.
		_ = process.Signal(syscall.SIGKILL)
		_ = process.Wait()
	}
	for _, p := range c.ports {
		p.Close()
	}
}
