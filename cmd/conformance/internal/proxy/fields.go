// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package proxy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// opaque is the list of fields of a message in which nothing changes what a client or a backend observes here.
const opaque = "*"

// known are the fields of Envoy's messages that are served, by the names of the messages.
var known = map[protoreflect.FullName]string{
	"envoy.config.listener.v3.Listener":         "name filter_chains listener_filters socket_options",
	"envoy.config.listener.v3.ListenerFilter":   "name typed_config",
	"envoy.config.listener.v3.FilterChain":      "filter_chain_match filters transport_socket",
	"envoy.config.listener.v3.FilterChainMatch": "transport_protocol server_names",
	"envoy.config.listener.v3.Filter":           "name typed_config",
	"envoy.config.core.v3.SocketOption":         opaque,
	"envoy.config.core.v3.TransportSocket":      "name typed_config",

	"envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector": "",
	"envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext":  "common_tls_context",
	"envoy.extensions.transport_sockets.tls.v3.CommonTlsContext":      "tls_params tls_certificate_sds_secret_configs alpn_protocols combined_validation_context",
	"envoy.extensions.transport_sockets.tls.v3.TlsParameters":         "tls_maximum_protocol_version",
	"envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext":    "common_tls_context sni",
	"envoy.extensions.transport_sockets.tls.v3.CommonTlsContext.CombinedCertificateValidationContext": "default_validation_context " +
		"validation_context_sds_secret_config",
	"envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext":               "match_typed_subject_alt_names",
	"envoy.extensions.transport_sockets.tls.v3.SubjectAltNameMatcher":                      "san_type matcher",
	"envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig":                            "name",
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy":                               "stat_prefix cluster weighted_clusters",
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster":               "clusters",
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster.ClusterWeight": "name weight",
	"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager": "stat_prefix rds use_remote_address upgrade_configs " +
		"http_filters common_http_protocol_options stream_idle_timeout internal_address_config",
	"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.InternalAddressConfig": opaque, // no header of it is looked at
	"envoy.extensions.filters.network.http_connection_manager.v3.Rds":                                         "route_config_name",
	"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.UpgradeConfig":         "upgrade_type",
	"envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter":                                  "name typed_config",
	"envoy.extensions.filters.http.router.v3.Router":                                                          "",
	"envoy.extensions.filters.http.grpc_web.v3.GrpcWeb":                                                       "",
	"envoy.extensions.filters.http.grpc_stats.v3.FilterConfig":                                                opaque,
	"envoy.config.core.v3.HttpProtocolOptions":                                                                "idle_timeout max_stream_duration",

	"envoy.config.route.v3.RouteConfiguration":              "name virtual_hosts ignore_port_in_host_matching",
	"envoy.config.route.v3.VirtualHost":                     "name domains routes",
	"envoy.config.route.v3.Route":                           "match route redirect direct_response " + headerEdits,
	"envoy.config.route.v3.RouteMatch":                      "prefix path safe_regex path_separated_prefix headers query_parameters",
	"envoy.config.route.v3.HeaderMatcher":                   "name string_match invert_match treat_missing_header_as_empty",
	"envoy.config.route.v3.QueryParameterMatcher":           "name string_match",
	"envoy.type.matcher.v3.StringMatcher":                   "exact prefix suffix ignore_case safe_regex",
	"envoy.type.matcher.v3.RegexMatcher":                    "regex",
	"envoy.type.matcher.v3.RegexMatchAndSubstitute":         "pattern substitution",
	"envoy.config.route.v3.RouteAction":                     "cluster weighted_clusters timeout max_stream_duration retry_policy prefix_rewrite regex_rewrite host_rewrite_literal request_mirror_policies",
	"envoy.config.route.v3.RouteAction.MaxStreamDuration":   "max_stream_duration",
	"envoy.config.route.v3.RouteAction.RequestMirrorPolicy": "cluster runtime_fraction",
	"envoy.config.core.v3.RuntimeFractionalPercent":         "default_value",
	"envoy.type.v3.FractionalPercent":                       "numerator denominator",
	"envoy.config.route.v3.WeightedCluster":                 "clusters",
	"envoy.config.route.v3.WeightedCluster.ClusterWeight":   "name weight " + headerEdits,
	"envoy.config.route.v3.RetryPolicy":                     "retry_on num_retries retriable_status_codes retry_back_off per_try_timeout",
	"envoy.config.route.v3.RetryPolicy.RetryBackOff":        "base_interval max_interval",
	"envoy.config.route.v3.RedirectAction":                  "scheme_redirect https_redirect host_redirect port_redirect path_redirect prefix_rewrite regex_rewrite response_code",
	"envoy.config.route.v3.DirectResponseAction":            "status body",
	"envoy.config.core.v3.DataSource":                       "inline_string",
	"envoy.config.core.v3.HeaderValueOption":                "header append_action",
	"envoy.config.core.v3.HeaderValue":                      "key value",

	"envoy.config.cluster.v3.Cluster":                                                "name type eds_cluster_config connect_timeout outlier_detection typed_extension_protocol_options transport_socket",
	"envoy.config.cluster.v3.Cluster.EdsClusterConfig":                               "service_name",
	"envoy.config.cluster.v3.OutlierDetection":                                       opaque,
	"envoy.extensions.upstreams.http.v3.HttpProtocolOptions":                         "common_http_protocol_options explicit_http_config use_downstream_protocol_config",
	"envoy.extensions.upstreams.http.v3.HttpProtocolOptions.ExplicitHttpConfig":      "http_protocol_options http2_protocol_options",
	"envoy.extensions.upstreams.http.v3.HttpProtocolOptions.UseDownstreamHttpConfig": "http2_protocol_options",
	"envoy.config.core.v3.Http1ProtocolOptions":                                      "",
	"envoy.config.core.v3.Http2ProtocolOptions":                                      "",
}

const headerEdits = "request_headers_to_add request_headers_to_remove response_headers_to_add response_headers_to_remove"

// check returns which fields of a message, and of those in it, are not served.
func check(m protoreflect.Message) error {
	name := m.Descriptor().FullName()
	if packed, ok := m.Interface().(*anypb.Any); ok {
		inner, err := packed.UnmarshalNew()
		if err != nil {
			return fmt.Errorf("decoding %s: %w", packed.TypeUrl, err)
		}
		return check(inner.ProtoReflect())
	}
	if strings.HasPrefix(string(name), "google.protobuf.") {
		return nil
	}
	list, ok := known[name]
	if !ok {
		return fmt.Errorf("%s is not served here", name)
	}
	if list == opaque {
		return nil
	}
	fields := strings.Fields(list)
	var errs []error
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if !slices.Contains(fields, string(f.Name())) {
			errs = append(errs, fmt.Errorf("the field %s of %s is not served here", f.Name(), name))
		} else {
			errs = append(errs, checkValue(f, v))
		}
		return true
	})
	return errors.Join(errs...)
}

func checkValue(f protoreflect.FieldDescriptor, v protoreflect.Value) error {
	var errs []error
	switch {
	case f.IsMap():
		if f.MapValue().Message() != nil {
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				errs = append(errs, check(v.Message()))
				return true
			})
		}
	case f.Message() == nil:
	case f.IsList():
		for i := range v.List().Len() {
			errs = append(errs, check(v.List().Get(i).Message()))
		}
	default:
		errs = append(errs, check(v.Message()))
	}
	return errors.Join(errs...)
}

// unpack returns a message of Envoy's API that is packed, which check has seen.
func unpack(packed *anypb.Any) proto.Message {
	m, err := packed.UnmarshalNew()
	if err != nil {
		return nil
	}
	return m
}
