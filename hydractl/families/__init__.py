"""The architectures this project reads, one file each, and those it refuses."""

from hydractl.families import bert, bert_kin, clip, modernbert, open_clip, timm_config, vit
from hydractl.families.family import Family

FAMILIES: tuple[Family, ...] = (
    *(vit.VIT, vit.MSN, vit.IJEPA, vit.DEIT, vit.DISTILLED_DEIT, vit.DINOV2, vit.DINOV2_WITH_REGISTERS, vit.DINOV3),
    *(vit.BEIT, vit.DATA2VEC_VISION, timm_config.FAMILY),
    *(clip.CLIP, clip.CLIP_IMAGE, clip.METACLIP_2, clip.METACLIP_2_IMAGE, clip.CHINESE_CLIP, open_clip.FAMILY),
    *(clip.SIGLIP, clip.SIGLIP_IMAGE),
    *(clip.IMAGE_TOWER, clip.PROJECTED_IMAGE_TOWER, clip.TEXT_TOWER, clip.PROJECTED_TEXT_TOWER),
    *(bert.BERT, bert.ELECTRA, bert.MPNET, bert.DEBERTA_V2, bert.ROBERTA, bert.XLM_ROBERTA),
    *(bert_kin.CAMEMBERT, bert_kin.DATA2VEC_TEXT, bert_kin.ERNIE, bert_kin.ROBERTA_PRELAYERNORM),
    *(bert_kin.XLM_ROBERTA_XL, bert_kin.MEGATRON_BERT, bert.DISTILBERT, modernbert.FAMILY),
    *(bert_kin.NOMIC_BERT, bert_kin.JINA_V3, *bert_kin.TAGGERS),
)

#: Why architectures are not read, by their `model_type` in config.json; transformers tells other decoders.
REASONS = {
    "its layers share one set of weights, so a head is dropped in all of them or in none": "albert",
    "its queries, keys and values lie head by head in one map, which only version 1 does": "deberta",
    "it is an export, so give the hydractl file that it was exported from": "hydra",
    "it has no attention heads": (
        "convnext convnextv2 resnet regnet bit efficientnet mobilenet_v1 mobilenet_v2 poolformer focalnet mamba mamba2 "
        "rwkv fnet hgnet_v2 van"
    ),
    "it is a decoder": "gpt2 gpt_neox opt bloom llama mistral mixtral qwen2 qwen3 gemma2 phi3 olmo2",  # and so on
    "it has an encoder and a decoder": (
        "bart mbart pegasus plbart led marian blenderbot prophetnet m2m_100 encoder-decoder vision-encoder-decoder "
        "longt5 mt5 umt5 switch_transformers whisper speech_to_text detr conditional_detr deformable_detr blip"
    ),
    "it reads sounds": (
        "wav2vec2 wav2vec2-bert wav2vec2-conformer hubert wavlm unispeech unispeech-sat sew sew-d data2vec-audio "
        "audio-spectrogram-transformer clap"
    ),
    "it reads texts with images or places on a page": (
        "layoutlm layoutlmv2 layoutlmv3 lilt bros markuplm visual_bert vilt flava lxmert bridgetower qwen2_vl llava"
    ),
    "its attention is sparse or approximate": "longformer big_bird reformer nystromformer yoso mra",
    "its attention works in windows and adds relative positions": (
        "swin swinv2 donut-swin maxvit hiera vitdet dinat nat"
    ),
    "its layers have several sizes": (
        "pvt pvt_v2 segformer levit cvt mobilevit mobilevitv2 efficientformer swiftformer glpn funnel"
    ),
    "its layers are bottlenecks": "mobilebert",
    "its heads stand beside convolutions": "convbert",
    "its norms shift nothing and divide by a root mean square": "eurobert",
    "it computes in integers": "ibert",
    "it has adapters of languages": "xmod",
    "it reads characters, tables or entities": "canine roc_bert tapas luke",
    "it scales embeddings by the number of masks in a text": "esm",
    "its queries are latents": "perceiver",
    "its maps are grouped convolutions": "squeezebert",
    "its attention adds relative positions": "t5 xlnet transfo-xl",
    "it takes images cut to patches of many sizes": "siglip2 pix2struct",
}
#: Architectures that are not read: model_type of config.json to the reason.
REFUSED = {name: reason for reason, names in REASONS.items() for name in names.split()}

__all__ = ["FAMILIES", "REFUSED", "Family"]
