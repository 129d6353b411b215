// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

//go:build !gateway15

package conformance

import (
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	suite "sigs.k8s.io/gateway-api/conformance"
	report "sigs.k8s.io/gateway-api/conformance/apis/v1"
	options "sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

// runSuite runs the suite of Gateway API 1.6 and later.
func runSuite(t *testing.T, c client.Client, core kubernetes.Interface, config *rest.Config, about report.Implementation, supported []features.FeatureName) {
	o := options.ConformanceOptions{Client: c, ClientOptions: client.Options{Scheme: c.Scheme()}, Clientset: core, RestConfig: config}
	o.GatewayClassName, o.Mode, o.RunTest, o.Implementation = className, "default", os.Getenv("SKEP_CONFORMANCE_RUN"), about
	o.TimeoutConfig, o.ReportOutputPath = timeouts(), os.Getenv("SKEP_CONFORMANCE_REPORT")
	o.UsableNetworkAddresses, o.UnusableNetworkAddresses = address(usableAddress), address(unusableAddress)
	o.CleanupTestResources, o.SupportedFeatures = true, supported
	o.ConformanceProfiles = []options.ConformanceProfileName{
		options.GatewayHTTPConformanceProfileName, options.GatewayGRPCConformanceProfileName, options.GatewayTLSConformanceProfileName,
		options.GatewayTCPConformanceProfileName, options.GatewayUDPConformanceProfileName,
	}
	suite.RunConformanceWithOptions(t, o)
}
