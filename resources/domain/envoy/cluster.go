// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// upstreamHTTP is the version of HTTP that a backend is spoken to with.
type upstreamHTTP int

const (
	noHTTP         upstreamHTTP = iota // TLS is passed through
	downstreamHTTP                     // that of the client
	http1
	http2
)

const httpOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// cluster is a backend whose endpoints come from the agent, by the name of the Service.
func (o Connections) cluster(name, service string, protocol upstreamHTTP) *clusterv3.Cluster {
	c := &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		OutlierDetection:     &clusterv3.OutlierDetection{SplitExternalLocalOriginErrors: true},
	}
	if o.Connect > 0 {
		c.ConnectTimeout = durationpb.New(o.Connect)
	}
	if service != "" {
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{ServiceName: service}
	}
	if protocol != noHTTP {
		c.TypedExtensionProtocolOptions = map[string]*anypb.Any{httpOptions: packed(upstreamOptions(protocol, o.Idle))}
	}
	return c
}

func upstreamOptions(protocol upstreamHTTP, idle time.Duration) *httpv3.HttpProtocolOptions {
	o := &httpv3.HttpProtocolOptions{CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{IdleTimeout: durationpb.New(idle)}}
	switch protocol {
	case http1:
		o.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{HttpProtocolOptions: &corev3.Http1ProtocolOptions{}},
		}}
	case http2:
		o.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: &corev3.Http2ProtocolOptions{}},
		}}
	default:
		o.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig{UseDownstreamProtocolConfig: &httpv3.HttpProtocolOptions_UseDownstreamHttpConfig{
			Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
		}}
	}
	return o
}
