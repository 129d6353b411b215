// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
)

// quota is how large a member's data may grow.
const quota = 8 << 30

// member is all that it takes to run one member. It travels to the member's
// process as JSON.
type member struct {
	Name    string
	DataDir string
	LogFile string
	// Client and Peer are host:port.
	Client, Peer string
	// Peers maps the names of all members to their peer URLs.
	Peers map[string]string
	// TLS is nil for plain text.
	TLS *tlsFiles
}

// tlsFiles serve clients and peers, which both must show certificates of the CA.
type tlsFiles struct {
	CA, ServerCert, ServerKey, ClientCert, ClientKey string
}

func (m member) scheme() string {
	if m.TLS != nil {
		return "https"
	}
	return "http"
}

func (m member) clientURL() string { return m.scheme() + "://" + m.Client }
func (m member) peerURL() string   { return m.scheme() + "://" + m.Peer }

// start runs the member in this process and returns when it takes part in a
// quorum.
func (m member) start(ctx context.Context) (*embed.Etcd, error) {
	cfg, err := m.config()
	if err != nil {
		return nil, fmt.Errorf("configure etcd member %s: %w", m.Name, err)
	}
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("start etcd member %s: %w", m.Name, err)
	}
	select {
	case <-server.Server.ReadyNotify():
		return server, nil
	case err := <-server.Err():
		server.Close()
		return nil, fmt.Errorf("start etcd member %s: %w", m.Name, err)
	case <-server.Server.StopNotify():
		server.Close()
		return nil, fmt.Errorf("start etcd member %s: it stopped, see %s", m.Name, m.LogFile)
	case <-ctx.Done():
		server.Close()
		return nil, fmt.Errorf("start etcd member %s: %w", m.Name, context.Cause(ctx))
	}
}

func (m member) config() (*embed.Config, error) {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = m.Name, m.DataDir
	cfg.Logger, cfg.LogLevel, cfg.LogOutputs = "zap", "warn", []string{m.LogFile}
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration // 0 warns of every request
	cfg.SocketOpts.ReusePort = true                                            // the ports are reserved
	cfg.UnsafeNoFsync = true
	cfg.WatchProgressNotifyInterval = 5 * time.Second // as kubeadm has it
	cfg.QuotaBackendBytes = quota
	cfg.EnableGRPCGateway = false
	cfg.InitialClusterToken = m.peerURL()
	cfg.InitialCluster = m.initialCluster()
	if len(m.Peers) == 1 {
		// No learners to wait for and no followers that need a long log. It elects itself within a few
		// ticks, each of which wakes up an idle process.
		cfg.TickMs, cfg.ElectionMs = 50, 250
		cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = 500, 50
	} else {
		cfg.InitialClusterToken = cfg.InitialCluster
	}
	if m.TLS != nil {
		info := transport.TLSInfo{
			CertFile: m.TLS.ServerCert, KeyFile: m.TLS.ServerKey,
			TrustedCAFile: m.TLS.CA, ClientCertAuth: true,
		}
		cfg.ClientTLSInfo, cfg.PeerTLSInfo = info, info
	}
	client, err := url.Parse(m.clientURL())
	if err != nil {
		return nil, err
	}
	peer, err := url.Parse(m.peerURL())
	if err != nil {
		return nil, err
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	return cfg, nil
}

func (m member) initialCluster() string {
	var members []string
	for i := range len(m.Peers) {
		name := memberName(i)
		members = append(members, name+"="+m.Peers[name])
	}
	return strings.Join(members, ",")
}

// RunMember runs the member that a file describes until ctx is done: the body of
// a member's process.
func RunMember(ctx context.Context, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the etcd member's description: %w", err)
	}
	var m member
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("parse %s: %w", file, err)
	}
	server, err := m.start(ctx)
	if err != nil {
		return err
	}
	defer server.Close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-server.Err():
		return fmt.Errorf("etcd member %s: %w", m.Name, err)
	case <-server.Server.StopNotify():
		return errors.New("etcd member " + m.Name + " stopped, see " + m.LogFile)
	}
}
