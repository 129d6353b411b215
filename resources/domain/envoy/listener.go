// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"cmp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	grpcstatsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_stats/v3"
	grpcwebv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_web/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The names of resources. Agents qualify them with those of the CiliumEnvoyConfig.
const (
	listenerName = "listener"
	plainTable   = "listener-insecure"
	secureTable  = "listener-secure"
)

func httpFilter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(config)}}
}

// manager is the filter that serves HTTP with a route table.
func (c Connections) manager(table string) *hcmv3.HttpConnectionManager {
	m := &hcmv3.HttpConnectionManager{
		StatPrefix:       table,
		RouteSpecifier:   &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: table}},
		UseRemoteAddress: wrapperspb.Bool(!c.Forwarded),
		UpgradeConfigs:   []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
		HttpFilters:      []*hcmv3.HttpFilter{httpFilter("envoy.filters.http.router", &routerv3.Router{})},
	}
	if c.StreamIdle != nil {
		m.StreamIdleTimeout = durationpb.New(*c.StreamIdle)
	}
	if internal := c.internal(); len(internal) > 0 {
		m.InternalAddressConfig = &hcmv3.HttpConnectionManager_InternalAddressConfig{CidrRanges: internal}
	}
	return m
}

// internal are the networks whose clients are internal.
func (c Connections) internal() (all []*corev3.CidrRange) {
	add := func(address string, bits uint32) {
		all = append(all, &corev3.CidrRange{AddressPrefix: address, PrefixLen: wrapperspb.UInt32(bits)})
	}
	if c.InternalIPv4 {
		add("10.0.0.0", 8)
		add("172.16.0.0", 12)
		add("192.168.0.0", 16)
		add("127.0.0.1", 32)
	}
	if c.InternalIPv6 {
		add("::1", 128)
	}
	return all
}

// httpFilterChain serves a route table of an Ingress or a Gateway. match and socket are of TLS, nil without.
func (o Options) httpFilterChain(table string, match *listenerv3.FilterChainMatch, socket *corev3.TransportSocket) *listenerv3.FilterChain {
	m := o.manager(table)
	var first []*hcmv3.HttpFilter
	if !o.NoGRPCWeb {
		first = append(first, httpFilter("envoy.filters.http.grpc_web", &grpcwebv3.GrpcWeb{}))
	}
	first = append(first, httpFilter("envoy.filters.http.grpc_stats", &grpcstatsv3.FilterConfig{EmitFilterState: true, EnableUpstreamStats: true}))
	m.HttpFilters = slices.Concat(first, o.auths.filters(), m.HttpFilters)
	m.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{MaxStreamDuration: durationpb.New(0)}
	m.XffNumTrustedHops = o.XFFNumTrustedHops
	return filterChain(match, "envoy.filters.network.http_connection_manager", m, socket)
}

func filterChain(match *listenerv3.FilterChainMatch, name string, config proto.Message, socket *corev3.TransportSocket) *listenerv3.FilterChain {
	if match == nil {
		match = &listenerv3.FilterChainMatch{TransportProtocol: "raw_buffer"}
	}
	return &listenerv3.FilterChain{
		FilterChainMatch: match,
		Filters:          []*listenerv3.Filter{{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(config)}}},
		TransportSocket:  socket,
	}
}

// tlsFilterChain terminates TLS for server names, all if there are none, with the certificates of secrets.
func (o Options) tlsFilterChain(table string, serverNames []string, secrets []Name) *listenerv3.FilterChain {
	var protocols []string
	if o.ALPN {
		protocols = []string{"h2,http/1.1"}
	}
	socket := o.tlsSocket(secrets, protocols)
	return o.httpFilterChain(table, &listenerv3.FilterChainMatch{TransportProtocol: "tls", ServerNames: serverNames}, socket)
}

// tlsSocket terminates TLS with the certificates of secrets.
func (o Options) tlsSocket(secrets []Name, protocols []string) *corev3.TransportSocket {
	tls := &tlsv3.CommonTlsContext{AlpnProtocols: protocols}
	for _, s := range secrets {
		tls.TlsCertificateSdsSecretConfigs = append(tls.TlsCertificateSdsSecretConfigs, &tlsv3.SdsSecretConfig{Name: o.secretName(s)})
	}
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed(&tlsv3.DownstreamTlsContext{CommonTlsContext: tls})},
	}
}

// tcpChain sends TLS connections, or what they have, to backends. Without backends it has no filter: Envoy closes them.
func (o Options) tcpChain(serverNames []string, to tcp) *listenerv3.FilterChain {
	match := &listenerv3.FilterChainMatch{TransportProtocol: "tls", ServerNames: serverNames}
	backends := to.backends
	if len(backends) == 0 {
		return &listenerv3.FilterChain{FilterChainMatch: match}
	}
	name := backends[0].cluster()
	tcp := &tcpv3.TcpProxy{StatPrefix: name, ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: name}}
	if o.HostsOfTCP && len(to.secrets) == 0 {
		tcp.StatPrefix = "tls-passthrough:" + cmp.Or(strings.Join(serverNames, ","), "*")
	}
	if len(backends) > 1 {
		weighted := &tcpv3.TcpProxy_WeightedCluster{}
		for _, b := range backends {
			weighted.Clusters = append(weighted.Clusters, &tcpv3.TcpProxy_WeightedCluster_ClusterWeight{Name: b.cluster(), Weight: weightOf(b)})
		}
		tcp.ClusterSpecifier = &tcpv3.TcpProxy_WeightedClusters{WeightedClusters: weighted}
	}
	var socket *corev3.TransportSocket
	if len(to.secrets) > 0 {
		socket = o.tlsSocket(to.secrets, nil)
	}
	return filterChain(match, "envoy.filters.network.tcp_proxy", tcp, socket)
}

func listenerFilter(name string, config proto.Message) *listenerv3.ListenerFilter {
	return &listenerv3.ListenerFilter{Name: name, ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: packed(config)}}
}

func tlsInspector() *listenerv3.ListenerFilter {
	return listenerFilter("envoy.filters.listener.tls_inspector", &tlsinspectorv3.TlsInspector{})
}

// listener is a listener without its filter chains.
func (o Options) listener(name string, ports []uint32) *listenerv3.Listener {
	l := &listenerv3.Listener{Name: name, ListenerFilters: []*listenerv3.ListenerFilter{tlsInspector()}}
	if o.ProxyProtocol {
		l.ListenerFilters = append([]*listenerv3.ListenerFilter{
			listenerFilter("envoy.filters.listener.proxy_protocol", &proxyprotocolv3.ProxyProtocol{}),
		}, l.ListenerFilters...)
	}
	for _, option := range []struct {
		description        string
		level, name, value int64
	}{
		{"Enable TCP keep-alive (default to enabled)", 1, 9, 1},
		{"TCP keep-alive idle time (in seconds) (defaults to 10s)", 6, 4, 10},
		{"TCP keep-alive probe intervals (in seconds) (defaults to 5s)", 6, 5, 5},
		{"TCP keep-alive probe max failures.", 6, 6, 10},
	} {
		l.SocketOptions = append(l.SocketOptions, &corev3.SocketOption{
			Description: option.description, Level: option.level, Name: option.name, Value: &corev3.SocketOption_IntValue{IntValue: option.value},
		})
	}
	o.bind(l, ports)
	return l
}

// bind sets the addresses of a listener on the network of the nodes.
func (o Options) bind(l *listenerv3.Listener, ports []uint32) {
	if o.HostNetwork == nil {
		return
	}
	for _, port := range ports {
		for _, ip := range o.HostNetwork.addresses() {
			address := &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
			}}}
			if l.Address == nil {
				l.Address = address
			} else {
				l.AdditionalAddresses = append(l.AdditionalAddresses, &listenerv3.AdditionalAddress{Address: address})
			}
		}
	}
}
