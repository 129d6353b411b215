// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
)

// World is what a proxy is told by its agent beside the configuration.
type World struct {
	// Endpoints are the addresses of a cluster, by the name of its endpoints.
	Endpoints func(service string) []string
	// Certificate is a secret by its name.
	Certificate func(name string) (*tls.Certificate, error)
	// Authority is a secret with certificates of authorities, by its name.
	Authority func(name string) (*x509.CertPool, error)
}

// Config is a configuration that is served. It is safe for concurrent use.
type Config struct {
	world    World
	chains   map[string][]*chain // by the name of the listener
	tables   map[string]*table
	clusters map[string]*cluster
}

// chain is a filter chain.
type chain struct {
	serverNames []string
	isTLS       bool // what it matches
	terminates  bool
	secrets     []string
	alpn        []string

	table string     // of HTTP; or
	tcp   []weighted // where connections go; or neither: they are closed
}

// weighted is a cluster with its weight.
type weighted struct {
	cluster string
	weight  uint32
}

// New returns the configuration of an agent for a proxy. The error says what agents or Envoy would refuse, or what is not
// served here.
func New(c *envoytest.Config, w World) (*Config, error) {
	to := &Config{w, map[string][]*chain{}, map[string]*table{}, map[string]*cluster{}}
	var errs []error
	for name, l := range c.Listeners {
		errs = append(errs, check(l.ProtoReflect()))
		for _, f := range l.FilterChains {
			one, err := newChain(f)
			errs = append(errs, err)
			to.chains[name] = append(to.chains[name], one)
		}
	}
	for name, t := range c.Tables {
		errs = append(errs, check(t.ProtoReflect()))
		one, err := newTable(t)
		errs = append(errs, err)
		to.tables[name] = one
	}
	for name, cl := range c.Clusters {
		errs = append(errs, check(cl.ProtoReflect()))
		one, err := newCluster(cl)
		errs = append(errs, err)
		to.clusters[name] = one
	}
	return to, errors.Join(errs...)
}

func newChain(f *listenerv3.FilterChain) (*chain, error) {
	c := &chain{serverNames: f.GetFilterChainMatch().GetServerNames()}
	switch p := f.GetFilterChainMatch().GetTransportProtocol(); p {
	case "tls":
		c.isTLS = true
	case "raw_buffer":
	default:
		return c, fmt.Errorf("a filter chain for the transport protocol %q is not served here", p)
	}
	if f.TransportSocket != nil {
		socket, ok := unpack(f.TransportSocket.GetTypedConfig()).(*tlsv3.DownstreamTlsContext)
		if !ok {
			return c, fmt.Errorf("the transport socket %s is not served here", f.TransportSocket.Name)
		}
		c.terminates = true
		for _, s := range socket.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs() {
			c.secrets = append(c.secrets, s.Name)
		}
		for _, names := range socket.GetCommonTlsContext().GetAlpnProtocols() {
			c.alpn = append(c.alpn, strings.Split(names, ",")...)
		}
	}
	switch len(f.Filters) {
	case 0: // Envoy closes connections that have no filter
		return c, nil
	case 1:
		return c, c.setFilter(unpack(f.Filters[0].GetTypedConfig()))
	}
	return c, fmt.Errorf("a filter chain with %d filters is not served here", len(f.Filters))
}

func (c *chain) setFilter(m proto.Message) error {
	switch m := m.(type) {
	case *hcmv3.HttpConnectionManager:
		c.table = m.GetRds().GetRouteConfigName()
	case *tcpv3.TcpProxy:
		if m.GetCluster() != "" {
			c.tcp = []weighted{{m.GetCluster(), 1}}
		}
		for _, w := range m.GetWeightedClusters().GetClusters() {
			c.tcp = append(c.tcp, weighted{w.Name, w.Weight})
		}
	default:
		return fmt.Errorf("the filter %T is not served here", m)
	}
	return nil
}

// chainFor is the filter chain for a connection, nil for none: server names are compared first, and the transport protocol
// among the chains that have the best of them.
func (c *Config) chainFor(listener, serverName string, isTLS bool) *chain {
	all := c.chains[listener]
	for _, name := range serverNames(serverName) {
		var best []*chain
		for _, f := range all {
			if f.has(name) {
				best = append(best, f)
			}
		}
		for _, f := range best {
			if f.isTLS == isTLS {
				return f
			}
		}
		if len(best) > 0 {
			return nil
		}
	}
	return nil
}

// serverNames are the names that match one, the best first; the last one is "", for all.
func serverNames(name string) []string {
	if name == "" {
		return []string{""}
	}
	name = strings.ToLower(name)
	all := []string{name}
	for {
		_, rest, ok := strings.Cut(strings.TrimPrefix(name, "*."), ".")
		if !ok {
			return append(all, "")
		}
		name = "*." + rest
		all = append(all, name)
	}
}

func (f *chain) has(serverName string) bool {
	if len(f.serverNames) == 0 {
		return serverName == ""
	}
	for _, name := range f.serverNames {
		if strings.EqualFold(name, serverName) {
			return true
		}
	}
	return false
}

// inspectTimeout is how long a client may take for its first bytes: Envoy's default for listener filters.
const inspectTimeout = 15 * time.Second

// choose picks one of several clusters by their weights.
func choose(all []weighted) (index int) {
	total := uint32(0)
	for _, w := range all {
		total += w.weight
	}
	if total == 0 {
		return 0
	}
	n := rand.Uint32N(total)
	for i, w := range all {
		if n < w.weight {
			return i
		}
		n -= w.weight
	}
	return 0
}

// dial connects to an endpoint of a cluster.
func (c *Config) dial(name string) (net.Conn, error) {
	address, err := c.endpoint(name)
	if err != nil {
		return nil, err
	}
	if t := c.clusters[name].tls; t != nil {
		return c.dialTLS(context.Background(), t, address)
	}
	return net.DialTimeout("tcp", address, connectTimeout)
}

const connectTimeout = 5 * time.Second

var errNoEndpoints = errors.New("no healthy upstream")

// endpoint is the address of an endpoint of a cluster.
func (c *Config) endpoint(name string) (string, error) {
	cl := c.clusters[name]
	if cl == nil {
		return "", fmt.Errorf("there is no cluster %s", name)
	}
	all := c.world.Endpoints(cl.service)
	if len(all) == 0 {
		return "", errNoEndpoints
	}
	return all[rand.IntN(len(all))], nil
}

// tlsConfig terminates TLS as a chain says.
func (c *Config) tlsConfig(f *chain) (*tls.Config, error) {
	to := &tls.Config{NextProtos: f.alpn, MinVersion: tls.VersionTLS12}
	for _, name := range f.secrets {
		cert, err := c.world.Certificate(name)
		if err != nil {
			return nil, err
		}
		to.Certificates = append(to.Certificates, *cert)
	}
	return to, nil
}
