// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package proxy

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
)

// cluster is where requests are sent.
type cluster struct {
	service string // the name of its endpoints
	http    version
	tls     *upstreamTLS // nil without
}

// version is the version of HTTP of a cluster.
type version int

const (
	http1      version = iota
	http2              // without TLS and without an upgrade
	downstream         // that of the request
)

func newCluster(from *clusterv3.Cluster) (*cluster, error) {
	c := &cluster{service: from.GetEdsClusterConfig().GetServiceName()}
	if c.service == "" {
		c.service = from.Name
	}
	for _, packed := range from.TypedExtensionProtocolOptions {
		o, ok := unpack(packed).(*httpv3.HttpProtocolOptions)
		switch {
		case !ok:
		case o.GetUseDownstreamProtocolConfig() != nil:
			c.http = downstream
		case o.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil:
			c.http = http2
		}
	}
	var err error
	c.tls, err = newUpstreamTLS(from.TransportSocket)
	return c, err
}
